/**
 * `desired.json`: what one host should be running, as a schema.
 *
 * Source: the reference page of the document (`HostDesiredState`). This file says what a document may
 * look like; `rules.ts` says what its parts may mean to each other.
 */
import { Schema } from "effect"
import { REFERENCES_PATTERN, referenceProblem } from "./references.ts"
import { VARIABLE_NAME, variableNameProblem } from "./variables.ts"

/** What a field says, beside what its type says; for the JSON Schema. */
const about =
  (description: string) =>
  <S extends Schema.Top>(schema: S): S =>
    Schema.annotateKey({ description })(schema) as unknown as S

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
  destinationPath: GuestPath.pipe(
    about(
      "The directory, as the app sees it, that the archive is unpacked into. It and everything in it is given to uid 65534."
    )
  )
}).annotate({
  identifier: "InitialContents",
  description:
    "A tar, plain or gzipped, or a zip, unpacked under `destinationPath` as the volume is formatted: once, so a later change does nothing."
})
export interface InitialContents extends Schema.Schema.Type<typeof InitialContents> {}

export const DesiredVolume = Schema.Struct({
  volumeId: VolumeId.pipe(about("The volume's name on this host. No two volumes share one.")),
  appId: AppId.pipe(about("Whose volume it is. An app uses one; a second is made, but stays unused.")),
  sizeBytes: nonNegative.annotate({
    description:
      "The size of the volume's device, in bytes: at least 8 MiB. A larger number grows it; a smaller one is refused."
  }),
  desiredState: DesiredPresence,
  initialContents: Schema.optionalKey(Schema.NullOr(InitialContents)).pipe(
    about("What the volume starts with. Absent or null for a volume that starts empty.")
  )
}).annotate({
  identifier: "DesiredVolume",
  description: "The writable top of an app's root: everything that it writes lands here, and only here."
})
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
export const HttpPort = port.annotate({
  identifier: "HttpPort",
  description:
    "The guest's port that requests for the app's hostnames go to, and that its health is asked of."
})
export const GuestPort = port.annotate({ identifier: "GuestPort", description: "A port in the guest." })

export const TenantValue = Schema.String.check(
  Schema.isMaxCodePoints(32768, { expected: "at most 32768 characters" }),
  Schema.makeFilter((value) => referenceProblem(value), {
    toJsonSchema: () => ({ pattern: REFERENCES_PATTERN.source })
  })
).annotate({
  identifier: "TenantValue",
  description:
    "Handed to the app as it stands, but for `$NIBRUN_HOSTNAME` and `$NIBRUN_HTTP_PORT`, with or without braces, which are filled in. Any other `$NIBRUN_` reference is refused."
})

const badNames = (environment: Readonly<Record<string, string>>) => {
  const problems: Array<{ readonly path: ReadonlyArray<string>; readonly issue: string }> = []
  for (const name in environment) {
    const issue = variableNameProblem(name)
    if (issue !== undefined) problems.push({ path: [name], issue })
  }
  return problems.length === 0 ? undefined : problems
}

// The names are a check of their own: a record whose key schema has a pattern drops the keys that do not match.
export const TenantEnvironment = Schema.Record(Schema.String, TenantValue)
  .check(
    Schema.makeFilter(badNames, {
      toJsonSchema: () => ({ propertyNames: { pattern: VARIABLE_NAME.source } })
    })
  )
  .annotate({
    identifier: "TenantEnvironment",
    description: "Environment variables by name: a letter or '_', then letters, digits and '_'."
  })
export type TenantEnvironment = typeof TenantEnvironment.Type

export const TenantArguments = Schema.Array(
  Schema.String.check(Schema.isMaxCodePoints(4096, { expected: "at most 4096 characters" }))
)
  .check(Schema.isMaxLength(64, { expected: "at most 64 arguments" }))
  .annotate({ identifier: "TenantArguments", description: "The program's arguments, without its own name." })

export const Command = Schema.Struct({
  program: GuestPath.pipe(about("The program, as a path in the app's root.")),
  args: TenantArguments,
  workingDirectory: GuestPath.pipe(
    about("Where it is started. Made if no layer holds it, and given to uid 65534 to write in.")
  ),
  environment: TenantEnvironment
}).annotate({
  identifier: "Command",
  description: "What the guest runs once its root is stacked, as uid 65534."
})
export interface Command extends Schema.Schema.Type<typeof Command> {}

export const InstanceResources = Schema.Struct({
  vcpuCount: nonNegative.annotate({ description: "Virtual CPUs: at least 1, at most what the host has." }),
  memoryMib: nonNegative.annotate({
    description:
      "Memory in MiB: at least 96, which a guest needs to boot, at most what the host can promise. An app that finds none free waits."
  })
}).annotate({
  identifier: "InstanceResources",
  description: "What the microVM is given. A number that the host cannot serve fails this instance only."
})
export interface InstanceResources extends Schema.Schema.Type<typeof InstanceResources> {}

const probeSettings = {
  intervalMs: nonNegative.annotate({ description: "From one probe to the next, in milliseconds." }),
  timeoutMs: nonNegative.annotate({ description: "How long one probe may take, in milliseconds." }),
  gracePeriodMs: nonNegative.annotate({
    description: "How long after its start an app may fail its probes, in milliseconds."
  }),
  healthyThreshold: nonNegative.annotate({
    description: "Probes in a row that must pass for it to be healthy."
  }),
  unhealthyThreshold: nonNegative.annotate({
    description: "Probes in a row that must fail for it to be unhealthy."
  })
}

export const HealthCheck = Schema.Union([
  Schema.Struct({
    kind: Schema.tag("http"),
    path: Schema.String.annotate({ description: "What is requested, from its '/' on." }),
    ...probeSettings
  }).annotate({
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
]).annotate({
  identifier: "HealthCheck",
  description:
    "What tells that the app is well, and what a wake waits for. A TCP connection is accepted by the guest's kernel even when the program hangs: prefer `http` for an app that speaks it."
})
export type HealthCheck = typeof HealthCheck.Type

export const RestartPolicy = Schema.Struct({
  maxRestarts: nonNegative.annotate({ description: "How often it is started again before it is given up." }),
  initialBackoffMs: nonNegative.annotate({
    description: "The wait before the first restart, in milliseconds."
  }),
  maxBackoffMs: nonNegative.annotate({ description: "The longest wait before a restart, in milliseconds." }),
  backoffFactor: Schema.Finite.annotate({
    description: "What the wait is multiplied by from one restart to the next."
  }),
  resetAfterMs: nonNegative.annotate({
    description: "After so many milliseconds without a failure the count starts anew."
  })
}).annotate({
  identifier: "RestartPolicy",
  description: "How the program is started again when it ends, and the microVM when it does."
})
export interface RestartPolicy extends Schema.Schema.Type<typeof RestartPolicy> {}

export const PortName = Schema.String.check(
  Schema.isPattern(/^[a-z][a-z0-9-]{0,15}$/u, {
    expected: "1 to 16 lowercase letters, digits or dashes, starting with a letter"
  })
).annotate({ identifier: "PortName", description: "What the port is called, other than `http`." })

export const InstancePort = Schema.Struct({ name: PortName, guestPort: GuestPort }).annotate({
  identifier: "InstancePort",
  description: "A port that the guest answers on beside its HTTP one: TCP and UDP, carried unread."
})
export interface InstancePort extends Schema.Schema.Type<typeof InstancePort> {}

export const AppConfig = Schema.Struct({
  httpPort: HttpPort,
  command: Command,
  resources: InstanceResources,
  healthCheck: HealthCheck,
  restartPolicy: RestartPolicy,
  ports: Schema.optionalKey(Schema.Array(InstancePort)).pipe(
    about(
      "What the app answers on beside `httpPort`. The order is the order of the host's ports: append, do not reorder."
    )
  )
}).annotate({
  identifier: "AppConfig",
  description: "What is run and how. A running instance keeps it until `deploymentId` changes."
})
export interface AppConfig extends Schema.Schema.Type<typeof AppConfig> {}

export const Hostname = Schema.String.check(
  Schema.isMaxCodePoints(253, { expected: "at most 253 characters" }),
  Schema.isPattern(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$/u, {
    expected: "a hostname of at least two lowercase labels"
  })
).annotate({
  identifier: "Hostname",
  description: "A name that requests are routed by. No two apps share one, and no app names one twice."
})

export const AppHostname = Schema.Struct({
  hostname: Hostname,
  kind: Schema.Literals(["platform", "custom"]).annotate({
    identifier: "AppHostnameKind",
    description:
      "`platform`: the host's own name for the app, and what `$NIBRUN_HOSTNAME` stands for; `custom`: one that its owner brought."
  })
}).annotate({ identifier: "AppHostname", description: "A hostname of an app." })
export interface AppHostname extends Schema.Schema.Type<typeof AppHostname> {}

export const IdleTimeoutMs = Schema.Int.check(
  Schema.isBetween({ minimum: 60_000, maximum: 86_400_000 })
).annotate({
  identifier: "IdleTimeoutMs",
  description: "Quiet time in milliseconds: from a minute to a day."
})
export const MaxLifetimeMs = Schema.Int.check(
  Schema.isBetween({ minimum: 60_000, maximum: 604_800_000 })
).annotate({
  identifier: "MaxLifetimeMs",
  description: "Time up in milliseconds: from a minute to a week."
})

export const SleepPolicy = Schema.Union([
  Schema.Struct({ kind: Schema.tag("never") }).annotate({
    identifier: "NeverSleep",
    description: "It stays up."
  }),
  Schema.Struct({ kind: Schema.tag("traffic-idle"), timeoutMs: IdleTimeoutMs }).annotate({
    identifier: "TrafficIdleSleep",
    description: "It sleeps after it has been quiet for `timeoutMs`."
  }),
  Schema.Struct({ kind: Schema.tag("max-lifetime"), ttlMs: MaxLifetimeMs }).annotate({
    identifier: "MaxLifetimeSleep",
    description: "It sleeps `ttlMs` after it came up, busy or not."
  })
]).annotate({
  identifier: "SleepPolicy",
  description:
    "What puts a running microVM back to sleep. Anything but `never` is for an `on-request` instance only."
})
export type SleepPolicy = typeof SleepPolicy.Type

export const ActivationPolicy = Schema.Struct({ sleepWhen: SleepPolicy }).annotate({
  identifier: "ActivationPolicy",
  description: "When an `on-request` instance sleeps."
})

export const DesiredInstance = Schema.Struct({
  appId: AppId.pipe(about("The app. It has one instance at most.")),
  deploymentId: DeploymentId.pipe(
    about("The release. A running instance is replaced when this changes, and only then.")
  ),
  volumeId: VolumeId.pipe(about("Its volume: one of this document's `volumes`, of the same app.")),
  desiredState: DesiredInstanceState,
  layers: Schema.Array(DesiredLayer)
    .check(
      Schema.isMinLength(1, { expected: "at least 1 layer" }),
      Schema.isMaxLength(MAX_LAYERS, { expected: `at most ${MAX_LAYERS} layers` })
    )
    .pipe(about("The root that the program sees, lowest layer first; the volume is writable on top.")),
  config: AppConfig,
  hostnames: Schema.Array(AppHostname).pipe(
    about("What the proxy routes to the app's `httpPort`. Empty for an app that nothing reaches by name.")
  ),
  activation: Schema.optionalKey(Schema.NullOr(ActivationPolicy)).pipe(
    about("When an `on-request` instance sleeps. Not beside `idleTimeoutMs`.")
  ),
  idleTimeoutMs: Schema.optionalKey(Schema.NullOr(IdleTimeoutMs)).pipe(
    about(
      "The older way to say `activation.sleepWhen` of kind `traffic-idle`. With neither, an `on-request` instance sleeps after 300000 quiet milliseconds."
    )
  )
}).annotate({ identifier: "DesiredInstance", description: "One app as it should be on this host." })
export interface DesiredInstance extends Schema.Schema.Type<typeof DesiredInstance> {}

// -------------------------------------------------------------------------- checkpoints and exports

export const DesiredCheckpoint = Schema.Struct({
  checkpointId: CheckpointId.pipe(about("The checkpoint's name on this host. No two share one.")),
  volumeId: VolumeId.pipe(about("The volume that it is cut of.")),
  desiredState: DesiredPresence
}).annotate({
  identifier: "DesiredCheckpoint",
  description: "A volume as it was when the checkpoint was cut, kept until it is `absent`."
})
export interface DesiredCheckpoint extends Schema.Schema.Type<typeof DesiredCheckpoint> {}

export const DesiredExport = Schema.Struct({
  exportId: ExportId.pipe(about("The export's name on this host. No two share one.")),
  appId: AppId.pipe(about("Whose volume it is.")),
  volumeId: VolumeId.pipe(about("The volume whose contents are bundled.")),
  objectKey: ObjectKey.pipe(about("Where the bundle is put in `exports.store_url`.")),
  desiredState: DesiredPresence,
  environment: Schema.optionalKey(Schema.NullOr(TenantEnvironment)).pipe(
    about("Put into the bundle as `.env`, as it stands.")
  )
}).annotate({
  identifier: "DesiredExport",
  description: "A bundle of a volume's contents, as a gzipped tar."
})
export interface DesiredExport extends Schema.Schema.Type<typeof DesiredExport> {}

// ----------------------------------------------------------------------------------------- document

export const HostDesiredState = Schema.Struct({
  hostId: HostId,
  revision: Schema.optionalKey(Revision),
  volumes: Schema.Array(DesiredVolume).pipe(
    about("The volumes that should be there. One that is no longer named is kept; `absent` deletes it.")
  ),
  instances: Schema.Array(DesiredInstance).pipe(
    about("The apps that this host should run. One that is no longer named is stopped.")
  ),
  checkpoints: Schema.Array(DesiredCheckpoint).pipe(about("Points in time of volumes that should be kept.")),
  exports: Schema.Array(DesiredExport).pipe(about("Bundles of volumes that should be made."))
}).annotate({
  identifier: "HostDesiredState",
  title: "desired.json",
  description:
    "What one host should be running. It is read anew whenever it is replaced, and refused whole when any part is wrong. Fields that are not known are ignored."
})
export interface HostDesiredState extends Schema.Schema.Type<typeof HostDesiredState> {}
