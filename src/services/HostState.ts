/**
 * The host's own notes: what must survive the death of the daemon.
 *
 * Every write is one transaction, committed to the disk before the effect succeeds: callers write what
 * they intend before they act, and what came of it after, so that a crash at any point leaves something
 * that the next start repairs.
 */
import { Context, type Effect, type Option, Schema } from "effect"
import {
  AppId,
  CheckpointId,
  DeploymentId,
  DesiredInstance,
  ExportId,
  HostId,
  VolumeId
} from "../document/schema.ts"
import { MachineRecord } from "./Hypervisor.ts"

/** The host's notes cannot be read or written. */
export class HostStateError extends Schema.TaggedError<HostStateError>()("HostStateError", {
  operation: Schema.String,
  cause: Schema.Defect()
}) {
  override get message() {
    return `the host's notes cannot be used (${this.operation}): ${this.cause instanceof Error ? this.cause.message : String(this.cause)}`
  }
}

/** The document in force: the bytes that were accepted, and their sha-256. */
export const AcceptedDocument = Schema.Struct({
  hostId: HostId,
  digest: Schema.String,
  text: Schema.String
})
export interface AcceptedDocument extends Schema.Schema.Type<typeof AcceptedDocument> {}

/** What an app's last start was made of, and how many starts its budget has seen. Times in ms since 1970. */
export const AppRecord = Schema.Struct({
  appId: AppId,
  slot: Schema.Int,
  /** The instance as the document named it when the microVM was started; absent before the first start. */
  instance: Schema.optionalKey(DesiredInstance),
  /** The microVM that is up or being started. Written before the VMM is, completed with its pid after. */
  machine: Schema.optionalKey(MachineRecord),
  startedAt: Schema.optionalKey(Schema.Number),
  /** Whether a microVM of this instance's deployment has ever come up: its first boot is done. */
  booted: Schema.optionalKey(Schema.Boolean),
  /**
   * The app sleeps since `at` (ms since 1970), which is when its snapshot was taken: no other is woken. `machine` is the microVM that the snapshot is of: it keeps its name through
   * sleep and wake. Without it there is no snapshot, and a wake is a boot.
   */
  asleep: Schema.optionalKey(
    Schema.Struct({ at: Schema.Number, machine: Schema.optionalKey(MachineRecord) })
  ),
  /** Whether the microVM has been healthy since its start. */
  healthy: Schema.optionalKey(Schema.Boolean),
  lastHealthyAt: Schema.optionalKey(Schema.Number),
  /** When the app first was what the document asks, and for which ask: its deployment and desired state. */
  converged: Schema.optionalKey(Schema.Struct({ at: Schema.Number, ask: Schema.String })),
  lastExitCode: Schema.optionalKey(Schema.Int),
  /** Starts since the budget was last earned back, and the time of the last. */
  attempts: Schema.Int,
  lastAttemptAt: Schema.optionalKey(Schema.Number),
  /** In-guest restarts since the last cold boot. */
  restartCount: Schema.Int,
  lastRestart: Schema.optionalKey(
    Schema.Struct({
      at: Schema.Number,
      attempt: Schema.Int,
      budget: Schema.Int,
      exit: Schema.Union([Schema.Struct({ code: Schema.Int }), Schema.Struct({ signal: Schema.Int })]),
      reason: Schema.String,
      backoffMs: Schema.Number
    })
  ),
  /** The last start's or microVM's failure, when, and under which deployment; cleared by a start that succeeds. */
  failure: Schema.optionalKey(
    Schema.Struct({ reason: Schema.String, at: Schema.Number, deploymentId: DeploymentId })
  )
})
export interface AppRecord extends Schema.Schema.Type<typeof AppRecord> {}

/** The microVM that may run for the app: that which is up, or one that sleeps and may have been waking. */
export const machineOf = ({ machine, asleep }: AppRecord): MachineRecord | undefined =>
  machine ?? asleep?.machine

/** A volume that exists on this host, or was deleted while the document still names it. */
export const VolumeRecord = Schema.Struct({
  volumeId: VolumeId,
  appId: AppId,
  sizeBytes: Schema.Number,
  /** `provisioning` is written before the backend acts; `ready` after it has formatted the volume. */
  state: Schema.Literals(["provisioning", "ready", "deleting", "deleted"])
})
export interface VolumeRecord extends Schema.Schema.Type<typeof VolumeRecord> {}

const amount = Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0))

/** What an app has used since this host first knew it. Every number only grows, up to 2^53 - 1. */
export const Meters = Schema.Struct({
  /** Time with a microVM that is up, and time asleep, in ms. */
  runningMs: amount,
  idleMs: amount,
  /** Over all its vCPUs. */
  cpuMs: amount,
  /** What reached the guest, and what it sent. */
  rxBytes: amount,
  txBytes: amount,
  /** What its volumes could hold, and what they held, times the time: in MiB seconds, parts of one included. */
  diskProvisionedMibSeconds: amount,
  diskUsedMibSeconds: amount
})
export interface Meters extends Schema.Schema.Type<typeof Meters> {}

/** What was measured of an app. Times in ms since 1970. */
export const MeterRecord = Schema.Struct({
  appId: AppId,
  meters: Meters,
  /** The last reading of a microVM's counters: what it has used before is in the meters, or was never seen. */
  counters: Schema.optionalKey(
    Schema.Struct({
      machineId: Schema.String,
      at: Schema.Finite,
      cpuBusyTicks: amount,
      receivedBytes: amount,
      sentBytes: amount
    })
  ),
  /** How full each volume was when its guest last said it. */
  volumes: Schema.Array(
    Schema.Struct({
      volumeId: VolumeId,
      totalBytes: amount,
      usedBytes: amount,
      measuredAt: Schema.Finite
    })
  )
})
export interface MeterRecord extends Schema.Schema.Type<typeof MeterRecord> {}

/** A checkpoint that the document asked for. Times in ms since 1970. */
export const CheckpointRecord = Schema.Struct({
  checkpointId: CheckpointId,
  volumeId: VolumeId,
  /** `creating` is written before the backend acts, and `deleting` too. */
  state: Schema.Literals(["creating", "ready", "deleting"]),
  /** Of one that is ready: what the store calls it, and when it was cut. */
  reference: Schema.optionalKey(Schema.String),
  readyAt: Schema.optionalKey(Schema.Finite)
})
export interface CheckpointRecord extends Schema.Schema.Type<typeof CheckpointRecord> {}

/** An export that is finished: it is not written again. Times in ms since 1970. */
export const ExportRecord = Schema.Struct({
  exportId: ExportId,
  /** Of the bundle. */
  sizeBytes: amount,
  readyAt: Schema.Finite,
  /** What is to be known of the bundle, if anything is. */
  remark: Schema.optionalKey(Schema.String)
})
export interface ExportRecord extends Schema.Schema.Type<typeof ExportRecord> {}

export class HostState extends Context.Service<
  HostState,
  {
    /** The document in force, if one was ever accepted. */
    readonly document: Effect.Effect<Option.Option<AcceptedDocument>, HostStateError>
    readonly accept: (document: AcceptedDocument) => Effect.Effect<void, HostStateError>

    readonly apps: Effect.Effect<ReadonlyArray<AppRecord>, HostStateError>
    readonly saveApp: (record: AppRecord) => Effect.Effect<void, HostStateError>
    /** Also gives the app's slot back. No error when there is no such record. */
    readonly deleteApp: (appId: AppId) => Effect.Effect<void, HostStateError>

    readonly volumes: Effect.Effect<ReadonlyArray<VolumeRecord>, HostStateError>
    readonly saveVolume: (record: VolumeRecord) => Effect.Effect<void, HostStateError>
    readonly deleteVolume: (volumeId: VolumeId) => Effect.Effect<void, HostStateError>

    readonly checkpoints: Effect.Effect<ReadonlyArray<CheckpointRecord>, HostStateError>
    readonly saveCheckpoint: (record: CheckpointRecord) => Effect.Effect<void, HostStateError>
    /** No error when there is no such record. */
    readonly deleteCheckpoint: (checkpointId: CheckpointId) => Effect.Effect<void, HostStateError>

    readonly exports: Effect.Effect<ReadonlyArray<ExportRecord>, HostStateError>
    readonly saveExport: (record: ExportRecord) => Effect.Effect<void, HostStateError>
    /** No error when there is no such record. */
    readonly deleteExport: (exportId: ExportId) => Effect.Effect<void, HostStateError>

    readonly meters: Effect.Effect<ReadonlyArray<MeterRecord>, HostStateError>
    /** One transaction: the records of these apps are replaced, and those of the forgotten ones deleted. */
    readonly saveMeters: (
      records: ReadonlyArray<MeterRecord>,
      forgotten: ReadonlyArray<AppId>
    ) => Effect.Effect<void, HostStateError>

    /** The slot handed out last, so that a slot given back is not the next one given. -1 before the first. */
    readonly slotCursor: Effect.Effect<number, HostStateError>
    /** One transaction: the app's new record and the cursor. Two records never hold one slot (unique). */
    readonly claimSlot: (record: AppRecord) => Effect.Effect<void, HostStateError>
  }
>()("nibrunner/services/HostState") {}
