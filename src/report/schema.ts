/**
 * `reported.json`: what became of everything that the document named, and why.
 *
 * camelCase; what is unknown is absent, never null, except `message` of the host, which is null when the last
 * document was fine. Timestamps are RFC 3339 in UTC.
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

/** The longest sentence of a report, in code points. */
export const MAX_MESSAGE = 512

const Timestamp = Schema.String.check(
  Schema.isPattern(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/u)
).annotate({ identifier: "Timestamp" })
const Message = Schema.String.check(Schema.isMaxCodePoints(MAX_MESSAGE)).annotate({ identifier: "Message" })
const count = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
const port = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 65535 }))

export const ProgramExit = Schema.Union([
  Schema.Struct({ code: Schema.Int }),
  Schema.Struct({ signal: Schema.Int })
])

export const InstanceState = Schema.Literals([
  "pending",
  "starting",
  "running",
  "unhealthy",
  "idle",
  "stopping",
  "stopped",
  "failed"
]).annotate({ identifier: "InstanceState" })
export type InstanceState = typeof InstanceState.Type

export const InstanceReport = Schema.Struct({
  appId: AppId,
  deploymentId: DeploymentId,
  state: InstanceState,
  restartCount: count,
  hostPort: Schema.optionalKey(port),
  guestIpv4: Schema.optionalKey(Schema.String),
  /** Bottom first; absent until a microVM has booted. */
  layerDigests: Schema.optionalKey(Schema.Array(Sha256Digest)),
  lastRestart: Schema.optionalKey(
    Schema.Struct({
      at: Timestamp,
      attempt: count,
      budget: count,
      exit: ProgramExit,
      reason: Message,
      backoffMs: count
    })
  ),
  startedAt: Schema.optionalKey(Timestamp),
  convergedAt: Schema.optionalKey(Timestamp),
  lastHealthyAt: Schema.optionalKey(Timestamp),
  lastExitCode: Schema.optionalKey(Schema.Int),
  message: Schema.optionalKey(Message)
}).annotate({ identifier: "InstanceReport" })
export interface InstanceReport extends Schema.Schema.Type<typeof InstanceReport> {}

export const VolumeReport = Schema.Struct({
  volumeId: VolumeId,
  appId: AppId,
  state: Schema.Literals(["pending", "ready", "detached", "deleted", "failed"]),
  sizeBytes: count,
  storagePrefix: Schema.optionalKey(Schema.String),
  devicePath: Schema.optionalKey(Schema.String),
  message: Schema.optionalKey(Message)
}).annotate({ identifier: "VolumeReport" })
export interface VolumeReport extends Schema.Schema.Type<typeof VolumeReport> {}

export const CheckpointReport = Schema.Struct({
  checkpointId: CheckpointId,
  volumeId: VolumeId,
  state: Schema.Literals(["pending", "ready", "deleted", "failed"]),
  reference: Schema.optionalKey(Schema.String),
  readyAt: Schema.optionalKey(Timestamp),
  message: Schema.optionalKey(Message)
}).annotate({ identifier: "CheckpointReport" })
export interface CheckpointReport extends Schema.Schema.Type<typeof CheckpointReport> {}

export const ExportReport = Schema.Struct({
  exportId: ExportId,
  state: Schema.Literals(["pending", "preparing", "ready", "failed", "expired"]),
  checkpointId: Schema.optionalKey(CheckpointId),
  sizeBytes: Schema.optionalKey(count),
  readyAt: Schema.optionalKey(Timestamp),
  message: Schema.optionalKey(Message)
}).annotate({ identifier: "ExportReport" })
export interface ExportReport extends Schema.Schema.Type<typeof ExportReport> {}

const Resources = Schema.Struct({ vcpuCount: count, memoryMib: count, cacheBytes: count })

export const HostReport = Schema.Struct({
  hostId: HostId,
  reportedAt: Timestamp,
  /** `registering` until everything that the daemon found at its start was looked at once. */
  state: Schema.Literals(["registering", "ready"]),
  capacity: Resources,
  allocatable: Resources,
  versions: Schema.Struct({
    agent: Schema.String,
    guestImage: Schema.String,
    zerofs: Schema.String,
    firecracker: Schema.String,
    hypervisor: Schema.optionalKey(Schema.String)
  }),
  volumes: Schema.Array(VolumeReport),
  instances: Schema.Array(InstanceReport),
  checkpoints: Schema.Array(CheckpointReport),
  exports: Schema.Array(ExportReport),
  acceptedDigest: Schema.optionalKey(Sha256Digest),
  acceptedRevision: Schema.optionalKey(Revision),
  message: Schema.NullOr(Message)
}).annotate({ identifier: "HostReport", title: "reported.json" })
export interface HostReport extends Schema.Schema.Type<typeof HostReport> {}
