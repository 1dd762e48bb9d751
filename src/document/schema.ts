/**
 * `desired.json`: what one host should be running, as a schema.
 *
 * Source: the reference page of the document (`HostDesiredState`). This file says what a document may
 * look like; `rules.ts` says what its parts may mean to each other.
 */
import { Schema } from "effect"
import { referenceProblem } from "./references.ts"

// ---------------------------------------------------------------------------------------------- ids

const identifier = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/u

const id = Schema.String.check(
  Schema.isPattern(identifier, {
    expected: "an identifier: 1 to 63 letters, digits, '_' or '-', starting with a letter or digit"
  })
)

export const HostId = id
  .pipe(Schema.brand("HostId"))
  .annotate({ identifier: "HostId", description: "The name of this host." })
export type HostId = typeof HostId.Type
export const AppId = id
  .pipe(Schema.brand("AppId"))
  .annotate({ identifier: "AppId", description: "An app: one instance, one volume." })
export type AppId = typeof AppId.Type
export const DeploymentId = id
  .pipe(Schema.brand("DeploymentId"))
  .annotate({ identifier: "DeploymentId", description: "One release of an app." })
export type DeploymentId = typeof DeploymentId.Type
export const VolumeId = id
  .pipe(Schema.brand("VolumeId"))
  .annotate({ identifier: "VolumeId", description: "A volume." })
export type VolumeId = typeof VolumeId.Type
export const CheckpointId = id
  .pipe(Schema.brand("CheckpointId"))
  .annotate({ identifier: "CheckpointId", description: "A checkpoint of a volume." })
export type CheckpointId = typeof CheckpointId.Type
export const ExportId = id
  .pipe(Schema.brand("ExportId"))
  .annotate({ identifier: "ExportId", description: "An export of a volume." })
export type ExportId = typeof ExportId.Type

/** `revision`: 1 to 128 characters from `!` to `~`, never ordered, only echoed. */
export const Revision = Schema.String.check(
  Schema.isPattern(/^[!-~]{1,128}$/u, { expected: "1 to 128 printable ASCII characters without spaces" })
).annotate({
  identifier: "Revision",
  description: "The writer's own name for this document, echoed in the report."
})

// ---------------------------------------------------------------------------------------- artifacts

export const Sha256Digest = Schema.String.check(
  Schema.isPattern(/^[0-9a-f]{64}$/u, { expected: "a sha-256 in 64 lowercase hex digits" })
).annotate({
  identifier: "Sha256Digest",
  description: "The sha-256 of the object's bytes, in lowercase hex."
})

export const ObjectKey = Schema.String.check(
  Schema.isMinLength(1, { expected: "at least 1 character" }),
  Schema.isMaxCodePoints(1024, { expected: "at most 1024 characters" })
).annotate({ identifier: "ObjectKey", description: "Where the object lies in the store." })

const guestPath = Schema.String.check(
  Schema.isMaxCodePoints(4096, { expected: "at most 4096 characters" }),
  Schema.isPattern(/^\/$|^(\/(?!\.\.?(\/|$))[^/\\"'\x00-\x1f]+)+$/u, {
    expected: "an absolute path without '.', '..', empty parts, quotes, backslashes or control characters"
  })
)

export const GuestPath = guestPath.annotate({
  identifier: "GuestPath",
  description: "A path in the app's root."
})

export const ExecutablePath = guestPath
  .check(
    Schema.makeFilter((path) => path !== "/" && path !== "/sbin/init", {
      expected: "a path to a file other than /sbin/init",
      toJsonSchema: () => ({ not: { enum: ["/", "/sbin/init"] } })
    })
  )
  .annotate({ identifier: "ExecutablePath", description: "Where the program lies in the app's root." })

// ------------------------------------------------------------------------------------------ volumes

export const DesiredPresence = Schema.Literals(["present", "absent"]).annotate({
  identifier: "DesiredPresence",
  description: "Whether the thing should exist. `absent` deletes it."
})
export type DesiredPresence = typeof DesiredPresence.Type

const nonNegative = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))

export const InitialContents = Schema.Struct({
  digest: Sha256Digest,
  objectKey: ObjectKey,
  destinationPath: GuestPath
}).annotate({
  identifier: "InitialContents",
  description: "An archive unpacked under `destinationPath` as the volume is formatted, once."
})
export interface InitialContents extends Schema.Schema.Type<typeof InitialContents> {}

export const DesiredVolume = Schema.Struct({
  volumeId: VolumeId,
  appId: AppId,
  sizeBytes: nonNegative.annotate({ description: "The size of the filesystem's device, in bytes." }),
  desiredState: DesiredPresence,
  initialContents: Schema.optionalKey(Schema.NullOr(InitialContents))
}).annotate({ identifier: "DesiredVolume" })
export interface DesiredVolume extends Schema.Schema.Type<typeof DesiredVolume> {}

// ---------------------------------------------------------------------------------------- instances

export const DesiredInstanceState = Schema.Literals(["running", "on-request", "stopped"]).annotate({
  identifier: "DesiredInstanceState",
  description:
    "`running` keeps the microVM up; `on-request` boots it at first and for each request that finds it asleep; `stopped` takes it down."
})
export type DesiredInstanceState = typeof DesiredInstanceState.Type

export const FilesystemLayer = Schema.Struct({
  kind: Schema.tag("filesystem"),
  digest: Sha256Digest,
  objectKey: ObjectKey
}).annotate({
  identifier: "FilesystemLayer",
  description: "A squashfs or ext4 image, attached as it was uploaded."
})

export const ExecutableLayer = Schema.Struct({
  kind: Schema.tag("executable"),
  digest: Sha256Digest,
  objectKey: ObjectKey,
  destinationPath: ExecutablePath
}).annotate({
  identifier: "ExecutableLayer",
  description: "One program, packed into an image at `destinationPath`."
})

export const DesiredLayer = Schema.Union([FilesystemLayer, ExecutableLayer]).annotate({
  identifier: "DesiredLayer",
  description: "One read-only layer of the root filesystem; the first is the lowest."
})
export type DesiredLayer = typeof DesiredLayer.Type

/** The most layers that one instance may stack. */
export const MAX_LAYERS = 8

const port = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 65535 }))
export const HttpPort = port.annotate({ identifier: "HttpPort" })
export const GuestPort = port.annotate({ identifier: "GuestPort" })

export const TenantValue = Schema.String.check(
  Schema.isMaxCodePoints(32768, { expected: "at most 32768 characters" }),
  Schema.makeFilter((value) => referenceProblem(value), { toJsonSchema: () => ({}) })
).annotate({
  identifier: "TenantValue",
  description: "`$NIBRUN_HOSTNAME` and `$NIBRUN_HTTP_PORT`, with or without braces, are filled in."
})

/** What an environment variable may be called. */
export const VARIABLE_NAME = /^[A-Za-z_][A-Za-z0-9_]*$/u

// The names are a check of their own: a record whose key schema has a pattern drops the keys that do not match.
export const TenantEnvironment = Schema.Record(Schema.String, TenantValue)
  .check(Schema.isPropertyNames(Schema.String.check(Schema.isPattern(VARIABLE_NAME))))
  .annotate({ identifier: "TenantEnvironment" })
export type TenantEnvironment = typeof TenantEnvironment.Type

export const TenantArguments = Schema.Array(
  Schema.String.check(Schema.isMaxCodePoints(4096, { expected: "at most 4096 characters" }))
)
  .check(Schema.isMaxLength(64, { expected: "at most 64 arguments" }))
  .annotate({ identifier: "TenantArguments" })

export const Command = Schema.Struct({
  program: GuestPath,
  args: TenantArguments,
  workingDirectory: GuestPath,
  environment: TenantEnvironment
}).annotate({ identifier: "Command", description: "What the guest runs, as uid 65534." })
export interface Command extends Schema.Schema.Type<typeof Command> {}

export const InstanceResources = Schema.Struct({
  vcpuCount: nonNegative,
  memoryMib: nonNegative
}).annotate({ identifier: "InstanceResources" })
export interface InstanceResources extends Schema.Schema.Type<typeof InstanceResources> {}

const probeSettings = {
  intervalMs: nonNegative,
  timeoutMs: nonNegative,
  gracePeriodMs: nonNegative,
  healthyThreshold: nonNegative,
  unhealthyThreshold: nonNegative
}

export const HealthCheck = Schema.Union([
  Schema.Struct({ kind: Schema.tag("http"), path: Schema.String, ...probeSettings }).annotate({
    identifier: "HttpHealthCheck",
    description: "`path`, requested on `httpPort`, answers 2xx."
  }),
  Schema.Struct({ kind: Schema.tag("tcp"), ...probeSettings }).annotate({
    identifier: "TcpHealthCheck",
    description: "A connection to `httpPort` is accepted."
  }),
  Schema.Struct({ kind: Schema.tag("boot-completed") }).annotate({
    identifier: "BootCompletedHealthCheck",
    description: "`httpPort` has accepted a connection once; after that the microVM being up is enough."
  })
]).annotate({ identifier: "HealthCheck" })
export type HealthCheck = typeof HealthCheck.Type

export const RestartPolicy = Schema.Struct({
  maxRestarts: nonNegative,
  initialBackoffMs: nonNegative,
  maxBackoffMs: nonNegative,
  backoffFactor: Schema.Finite,
  resetAfterMs: nonNegative
}).annotate({ identifier: "RestartPolicy" })
export interface RestartPolicy extends Schema.Schema.Type<typeof RestartPolicy> {}

export const PortName = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9-]{0,15}$/u, {
    expected: "1 to 16 lowercase letters, digits or dashes, starting with a letter"
  })
).annotate({ identifier: "PortName" })

export const InstancePort = Schema.Struct({ name: PortName, guestPort: GuestPort }).annotate({
  identifier: "InstancePort",
  description: "A port that the guest answers on beside its HTTP one; TCP and UDP."
})
export interface InstancePort extends Schema.Schema.Type<typeof InstancePort> {}

export const AppConfig = Schema.Struct({
  httpPort: HttpPort,
  command: Command,
  resources: InstanceResources,
  healthCheck: HealthCheck,
  restartPolicy: RestartPolicy,
  ports: Schema.optionalKey(Schema.Array(InstancePort))
}).annotate({ identifier: "AppConfig" })
export interface AppConfig extends Schema.Schema.Type<typeof AppConfig> {}

export const Hostname = Schema.String.check(
  Schema.isMaxCodePoints(253, { expected: "at most 253 characters" }),
  Schema.isPattern(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$/u, {
    expected: "a hostname of at least two lowercase labels"
  })
).annotate({ identifier: "Hostname" })

export const AppHostname = Schema.Struct({
  hostname: Hostname,
  kind: Schema.Literals(["platform", "custom"]).annotate({ identifier: "AppHostnameKind" })
}).annotate({ identifier: "AppHostname" })
export interface AppHostname extends Schema.Schema.Type<typeof AppHostname> {}

export const IdleTimeoutMs = Schema.Int.check(
  Schema.isBetween({ minimum: 60_000, maximum: 86_400_000 })
).annotate({
  identifier: "IdleTimeoutMs"
})
export const MaxLifetimeMs = Schema.Int.check(
  Schema.isBetween({ minimum: 60_000, maximum: 604_800_000 })
).annotate({
  identifier: "MaxLifetimeMs"
})

export const SleepPolicy = Schema.Union([
  Schema.Struct({ kind: Schema.tag("never") }).annotate({ identifier: "NeverSleep" }),
  Schema.Struct({ kind: Schema.tag("traffic-idle"), timeoutMs: IdleTimeoutMs }).annotate({
    identifier: "TrafficIdleSleep"
  }),
  Schema.Struct({ kind: Schema.tag("max-lifetime"), ttlMs: MaxLifetimeMs }).annotate({
    identifier: "MaxLifetimeSleep"
  })
]).annotate({ identifier: "SleepPolicy", description: "What puts a running microVM back to sleep." })
export type SleepPolicy = typeof SleepPolicy.Type

export const ActivationPolicy = Schema.Struct({ sleepWhen: SleepPolicy }).annotate({
  identifier: "ActivationPolicy"
})

export const DesiredInstance = Schema.Struct({
  appId: AppId,
  deploymentId: DeploymentId,
  volumeId: VolumeId,
  desiredState: DesiredInstanceState,
  layers: Schema.Array(DesiredLayer).check(
    Schema.isMinLength(1, { expected: "at least 1 layer" }),
    Schema.isMaxLength(MAX_LAYERS, { expected: `at most ${MAX_LAYERS} layers` })
  ),
  config: AppConfig,
  hostnames: Schema.Array(AppHostname),
  activation: Schema.optionalKey(Schema.NullOr(ActivationPolicy)),
  idleTimeoutMs: Schema.optionalKey(Schema.NullOr(IdleTimeoutMs))
}).annotate({ identifier: "DesiredInstance" })
export interface DesiredInstance extends Schema.Schema.Type<typeof DesiredInstance> {}

// -------------------------------------------------------------------------- checkpoints and exports

export const DesiredCheckpoint = Schema.Struct({
  checkpointId: CheckpointId,
  volumeId: VolumeId,
  desiredState: DesiredPresence
}).annotate({ identifier: "DesiredCheckpoint" })
export interface DesiredCheckpoint extends Schema.Schema.Type<typeof DesiredCheckpoint> {}

export const DesiredExport = Schema.Struct({
  exportId: ExportId,
  appId: AppId,
  volumeId: VolumeId,
  objectKey: ObjectKey,
  desiredState: DesiredPresence,
  environment: Schema.optionalKey(Schema.NullOr(TenantEnvironment))
}).annotate({ identifier: "DesiredExport" })
export interface DesiredExport extends Schema.Schema.Type<typeof DesiredExport> {}

// ----------------------------------------------------------------------------------------- document

export const HostDesiredState = Schema.Struct({
  hostId: HostId,
  revision: Schema.optionalKey(Revision),
  volumes: Schema.Array(DesiredVolume),
  instances: Schema.Array(DesiredInstance),
  checkpoints: Schema.Array(DesiredCheckpoint),
  exports: Schema.Array(DesiredExport)
}).annotate({
  identifier: "HostDesiredState",
  title: "desired.json",
  description: "What one host should be running."
})
export interface HostDesiredState extends Schema.Schema.Type<typeof HostDesiredState> {}
