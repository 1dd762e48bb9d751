/**
 * `reported.json`: what became of everything that the document named, and why.
 *
 * camelCase; what is unknown is absent, never null, except `message` of the host, which is null when all is well.
 * Timestamps are RFC 3339 in UTC.
 */
import { Schema } from "effect"
import {
  AppId,
  CheckpointId,
  DeploymentId,
  ExportId,
  HostId,
  Revision,
  Sha256Digest,
  VolumeId
} from "../document/schema.ts"

/** What a field says, beside what its type says; for the JSON Schema. */
const about =
  (description: string) =>
  <S extends Schema.Top>(schema: S): S =>
    Schema.annotateKey({ description })(schema) as unknown as S

/** The longest sentence of a report, in code points. */
export const MAX_MESSAGE = 512

const Timestamp = Schema.String.check(
  Schema.isPattern(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/u)
).annotate({ identifier: "Timestamp", description: "A time as RFC 3339 in UTC." })
const Message = Schema.String.check(Schema.isMaxCodePoints(MAX_MESSAGE)).annotate({
  identifier: "Message",
  description: "Why it is as it is: a sentence for the operator. Never a secret."
})
const count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const port = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 65535 }))

export const ProgramExit = Schema.Union([
  Schema.Struct({ code: Schema.Int.annotate({ description: "The exit code." }) }),
  Schema.Struct({ signal: Schema.Int.annotate({ description: "The number of the signal that ended it." }) })
]).annotate({ description: "How a program ended." })

export const InstanceState = Schema.Literals([
  "pending",
  "starting",
  "running",
  "unhealthy",
  "idle",
  "stopping",
  "stopped",
  "failed"
]).annotate({
  identifier: "InstanceState",
  description:
    "`pending`: waits for room or its turn; `starting`: the microVM is up, the app has not passed its health check; `running`: it serves; `unhealthy`: it was healthy once and fails its checks; `idle`: it sleeps until a request; `stopping`; `stopped`: as the document asks; `failed`: see `message`."
})
export type InstanceState = typeof InstanceState.Type

export const LastRestart = Schema.Struct({
  at: Timestamp,
  attempt: count.annotate({ description: "1 for the first restart since the budget was earned back." }),
  budget: count.annotate({ description: "`maxRestarts` of the restart policy." }),
  exit: ProgramExit,
  reason: Message,
  backoffMs: count.annotate({ description: "How long the restart was held back, in milliseconds." })
}).annotate({ identifier: "LastRestart", description: "The last time that the program was started again." })

export const InstanceCompute = Schema.Struct({
  memoryTotalBytes: count.annotate({ description: "Memory that the guest sees." }),
  memoryUsedBytes: count.annotate({ description: "Of it, what is in use." }),
  cpuShare: Schema.optionalKey(
    Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1 })).annotate({
      description: "The busy part of its CPUs' time since the reading before, 0 to 1."
    })
  ),
  measuredAt: Timestamp
}).annotate({
  identifier: "InstanceCompute",
  description: "What the guest last said of itself, once a minute. Absent while no microVM is up."
})
export interface InstanceCompute extends Schema.Schema.Type<typeof InstanceCompute> {}

export const InstanceMeters = Schema.Struct({
  runningMs: count.annotate({
    description: "Time in the states `starting`, `running`, `unhealthy` and `stopping`, in milliseconds."
  }),
  idleMs: count.annotate({ description: "Time asleep, in milliseconds." }),
  cpuMs: count.annotate({ description: "CPU time used, over all its CPUs, in milliseconds." }),
  rxBytes: count.annotate({
    description: "Bytes that reached the guest, counted at its network interface."
  }),
  txBytes: count.annotate({ description: "Bytes that the guest sent, counted at its network interface." }),
  diskProvisionedMibSeconds: count.annotate({
    description: "The size of its volumes times time, in MiB seconds."
  }),
  diskUsedMibSeconds: count.annotate({ description: "What is used of them times time, in MiB seconds." })
}).annotate({
  identifier: "InstanceMeters",
  description:
    "What the app has used since the document first named it. They only grow, and are forgotten when it is named no more."
})
export interface InstanceMeters extends Schema.Schema.Type<typeof InstanceMeters> {}

export const InstanceReport = Schema.Struct({
  appId: AppId,
  deploymentId: DeploymentId.pipe(about("The release that this is about.")),
  state: InstanceState,
  restartCount: count.annotate({
    description: "Restarts of the program inside the guest since the microVM last booted."
  }),
  hostPort: Schema.optionalKey(port).pipe(
    about(
      "The host's port that leads to the app's `httpPort`; its `config.ports` have those after it, in their order. Absent for an app that got no slot."
    )
  ),
  guestIpv4: Schema.optionalKey(Schema.String).pipe(about("The guest's address on this host.")),
  layerDigests: Schema.optionalKey(Schema.Array(Sha256Digest)).pipe(
    about("What the microVM booted from, bottom first. Absent until one has.")
  ),
  lastRestart: Schema.optionalKey(LastRestart),
  startedAt: Schema.optionalKey(Timestamp).pipe(about("When the microVM last booted or woke.")),
  convergedAt: Schema.optionalKey(Timestamp).pipe(
    about("When the app first became what this `deploymentId` and `desiredState` ask.")
  ),
  lastHealthyAt: Schema.optionalKey(Timestamp).pipe(about("When its health check last passed.")),
  lastExitCode: Schema.optionalKey(Schema.Int).pipe(
    about("The exit code of what ended last. Absent when a signal ended it.")
  ),
  compute: Schema.optionalKey(InstanceCompute),
  meters: Schema.optionalKey(InstanceMeters),
  message: Schema.optionalKey(Message)
}).annotate({ identifier: "InstanceReport", description: "What became of an app." })
export interface InstanceReport extends Schema.Schema.Type<typeof InstanceReport> {}

export const VolumeUsage = Schema.Struct({
  totalBytes: count.annotate({ description: "What the filesystem holds when full." }),
  usedBytes: count.annotate({ description: "What is in it." }),
  measuredAt: Timestamp
}).annotate({ identifier: "VolumeUsage", description: "How full the volume was. Kept while its app sleeps." })
export interface VolumeUsage extends Schema.Schema.Type<typeof VolumeUsage> {}

export const VolumeReport = Schema.Struct({
  volumeId: VolumeId,
  appId: AppId,
  state: Schema.Literals(["pending", "ready", "detached", "deleted", "failed"]).annotate({
    description:
      "`pending`: not made yet; `ready`: made and formatted; `detached`: kept, but in no use; `deleted`: as the document asks; `failed`: see `message`."
  }),
  sizeBytes: count.annotate({
    description: "The size of its device. One that is to grow does so when its app boots next."
  }),
  storagePrefix: Schema.optionalKey(Schema.String).pipe(about("`volumes.storage_prefix` of this host.")),
  devicePath: Schema.optionalKey(Schema.String).pipe(
    about("The host's block device that it is. Absent on a host whose volumes are files.")
  ),
  usage: Schema.optionalKey(VolumeUsage),
  message: Schema.optionalKey(Message)
}).annotate({ identifier: "VolumeReport", description: "What became of a volume." })
export interface VolumeReport extends Schema.Schema.Type<typeof VolumeReport> {}

export const CheckpointReport = Schema.Struct({
  checkpointId: CheckpointId,
  volumeId: VolumeId,
  state: Schema.Literals(["pending", "ready", "deleted", "failed"]),
  reference: Schema.optionalKey(Schema.String).pipe(about("What the store calls it.")),
  readyAt: Schema.optionalKey(Timestamp).pipe(about("When it was cut.")),
  message: Schema.optionalKey(Message)
}).annotate({ identifier: "CheckpointReport", description: "What became of a checkpoint." })
export interface CheckpointReport extends Schema.Schema.Type<typeof CheckpointReport> {}

export const ExportReport = Schema.Struct({
  exportId: ExportId,
  state: Schema.Literals(["pending", "preparing", "ready", "failed", "expired"]),
  checkpointId: Schema.optionalKey(CheckpointId).pipe(about("The checkpoint that it is made from.")),
  sizeBytes: Schema.optionalKey(count).pipe(about("The size of the bundle.")),
  readyAt: Schema.optionalKey(Timestamp).pipe(about("When it was uploaded.")),
  message: Schema.optionalKey(Message)
}).annotate({ identifier: "ExportReport", description: "What became of an export." })
export interface ExportReport extends Schema.Schema.Type<typeof ExportReport> {}

const Resources = Schema.Struct({
  vcpuCount: count,
  memoryMib: count.annotate({ description: "Memory for guests, in MiB." }),
  cacheBytes: count.annotate({ description: "The filesystem that holds `paths.state_dir`." })
})

export const HostReport = Schema.Struct({
  hostId: HostId.pipe(about("As the document names it; `host-local` before the first.")),
  reportedAt: Timestamp,
  state: Schema.Literals(["registering", "ready"]).annotate({
    description: "`registering` until everything that the daemon found at its start was looked at once."
  }),
  capacity: Resources.pipe(about("What the host has.")),
  allocatable: Resources.pipe(about("What of it is free.")),
  versions: Schema.Struct({
    agent: Schema.String,
    guestImage: Schema.String,
    zerofs: Schema.String,
    firecracker: Schema.String,
    hypervisor: Schema.optionalKey(Schema.String)
  }).annotate({ description: "What this host runs; `none` for what it does not." }),
  volumes: Schema.Array(VolumeReport),
  instances: Schema.Array(InstanceReport),
  checkpoints: Schema.Array(CheckpointReport),
  exports: Schema.Array(ExportReport),
  acceptedDigest: Schema.optionalKey(Sha256Digest).pipe(
    about("The sha-256 of the document in force: of the very bytes of its file.")
  ),
  acceptedRevision: Schema.optionalKey(Revision).pipe(about("Its `revision`, if it has one.")),
  message: Schema.NullOr(Message).pipe(
    about(
      "What is wrong with the host as a whole. Above all why the file of the document is not what is in force: it was refused, or is gone; the document before stays in force. Null when all is well."
    )
  )
}).annotate({
  identifier: "HostReport",
  title: "reported.json",
  description: "What became of everything that the document named, and why. What is not known is absent."
})
export interface HostReport extends Schema.Schema.Type<typeof HostReport> {}
