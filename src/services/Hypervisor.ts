/**
 * microVMs. The daemon's death stops none of them: what a daemon holds of a microVM is an attachment in a
 * Scope, and closing the scope lets go. Only `kill` and `sleep` end a microVM.
 */
import { Context, type Deferred, type Effect, type Option, Schema, type Scope } from "effect"
import { AppId } from "../document/schema.ts"
import { NetworkLink } from "./Network.ts"
import { VolumeAttachment } from "./VolumeBackend.ts"

/**
 * A microVM as the host's notes know it. `process` is absent between the intent to boot and the VMM's start;
 * pid alone names no process: the boot of the host and the process's start time go with it.
 */
export const MachineRecord = Schema.Struct({
  /** Unique per boot: 16 lowercase hex digits. Part of the VMM's command line, so that a VMM can be found without its pid. */
  machineId: Schema.String,
  appId: AppId,
  slot: Schema.Int,
  guestImageVersion: Schema.String,
  process: Schema.optionalKey(
    Schema.Struct({
      pid: Schema.Int,
      /** `/proc/sys/kernel/random/boot_id`. */
      hostBootId: Schema.String,
      /** Field 22 of `/proc/<pid>/stat`, in clock ticks since the host's boot. */
      startTime: Schema.Int
    })
  )
})
export interface MachineRecord extends Schema.Schema.Type<typeof MachineRecord> {}

export const MachineSpec = Schema.Struct({
  machineId: Schema.String,
  appId: AppId,
  slot: Schema.Int,
  vcpuCount: Schema.Int,
  memoryMib: Schema.Int,
  image: Schema.Struct({
    version: Schema.String,
    kernel: Schema.String,
    initramfs: Schema.String,
    base: Schema.String
  }),
  /** Paths of layer images, bottom first. */
  layers: Schema.Array(Schema.String),
  volume: VolumeAttachment,
  link: NetworkLink
})
export interface MachineSpec extends Schema.Schema.Type<typeof MachineSpec> {}

/**
 * What a snapshot says of itself. It is good for one wake, of the same app in the same slot, under the same deployment,
 * guest image and hypervisor, and with a spec that differs in the machineId alone.
 */
export const SnapshotRecord = Schema.Struct({
  /** What the machine that sleeps was booted with. */
  spec: MachineSpec,
  deploymentId: Schema.String,
  /** ms since 1970. */
  takenAt: Schema.Number,
  /** What the guest's instructions ran on: the hypervisor's `version`, and whatever else a guest would miss. */
  hypervisor: Schema.String,
  /** Bytes on the disk, all files together. */
  storedBytes: Schema.Number
})
export interface SnapshotRecord extends Schema.Schema.Type<typeof SnapshotRecord> {}

/** Where a snapshot lies, and what it belongs to. */
export interface SnapshotPlace {
  /** A directory of the app's own: `<snapshot_dir>/<appId>`. Its parent exists; what is in it belongs to the snapshot. */
  readonly directory: string
  readonly deploymentId: string
}

/** How a microVM's VMM ended. */
export type MachineExit =
  | { readonly kind: "exited"; readonly code: number; readonly reason?: string }
  | { readonly kind: "killed"; readonly signal: string }
  /** An adopted VMM is not the daemon's child: that it ended is all there is to know. */
  | { readonly kind: "gone"; readonly reason?: string }

/** The host's end of the channel to PID 1. */
export interface GuestTransport {
  readonly kind: "unix"
  /** The path of a listening unix socket that takes one connection at a time. */
  readonly path: string
}

export class BootFailed extends Schema.TaggedError<BootFailed>()("BootFailed", {
  appId: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the microVM of ${this.appId} could not be started: ${this.reason}`
  }
}

export class HypervisorError extends Schema.TaggedError<HypervisorError>()("HypervisorError", {
  operation: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the hypervisor could not ${this.operation}: ${this.reason}`
  }
}

/**
 * The microVM was not put to sleep, and no snapshot is left. `resumed`: it runs on with its memory, and its guest is to be
 * thawed; otherwise its VMM has ended, as `Machine.exit` tells.
 */
export class SleepFailed extends Schema.TaggedError<SleepFailed>()("SleepFailed", {
  appId: Schema.String,
  reason: Schema.String,
  resumed: Schema.Boolean
}) {
  override get message() {
    return `${this.appId} could not be put to sleep: ${this.reason}`
  }
}

/** There is nothing to wake: what there was is discarded, and the app has to boot. */
export class SnapshotUnusable extends Schema.TaggedError<SnapshotUnusable>()("SnapshotUnusable", {
  appId: Schema.String,
  /** `foreign`: whole, but made under something else than what is to be woken. */
  kind: Schema.Literals(["missing", "damaged", "foreign"]),
  reason: Schema.String
}) {
  override get message() {
    return `the snapshot of ${this.appId} cannot be used: ${this.reason}`
  }
}

/**
 * The microVM could not be restored, though its snapshot was good. `kept`: the VMM did not even start (for instance because
 * a port of the host is taken), and the snapshot can be woken once more; otherwise it is discarded.
 */
export class WakeFailed extends Schema.TaggedError<WakeFailed>()("WakeFailed", {
  appId: Schema.String,
  reason: Schema.String,
  kept: Schema.Boolean
}) {
  override get message() {
    return `${this.appId} could not be woken: ${this.reason}`
  }
}

/** This daemon's attachment to a microVM that runs. */
export interface Machine {
  readonly record: MachineRecord
  /** Done when the VMM has ended, whoever ended it. */
  readonly exit: Deferred.Deferred<MachineExit>
  readonly channel: GuestTransport
  /** Bytes of host memory that the VMM holds (resident set); none when it cannot be told. */
  readonly residentBytes: Effect.Effect<Option.Option<number>>
  /**
   * Whether the guest stands still because its volume gives errors. It goes on by itself as soon as it can be used, and
   * sees none; until then its PID 1 may answer nothing.
   */
  readonly waitsForVolume: Effect.Effect<boolean>
}

export class Hypervisor extends Context.Service<
  Hypervisor,
  {
    /** What the report's `versions` says, for instance `qemu 7.2.22 (TCG)`. */
    readonly version: string
    /**
     * Starts the VMM and lets the guest run. Succeeds once the VMM runs and its channel can be connected to;
     * whether the guest comes up is the channel's to say. Interrupted or failed, it leaves no process, socket
     * or file.
     */
    readonly boot: (spec: MachineSpec) => Effect.Effect<Machine, BootFailed, Scope.Scope>
    /**
     * Attaches to the microVM of a record that an earlier daemon wrote, with or without its `process`; none
     * when it no longer runs. Never attaches to another process that has got the same pid.
     *
     * A machine that an earlier daemon was putting to sleep runs on, and what there is of its snapshot, committed or not, is
     * discarded before: a guest may be `frozen` still. One that was being woken and had not run yet is ended, and its
     * snapshot is as good as before.
     */
    readonly adopt: (
      record: MachineRecord
    ) => Effect.Effect<Option.Option<Machine>, HypervisorError, Scope.Scope>
    /** Ends the VMM at once and waits until it is gone, its files with it. No error when it is gone already. */
    readonly kill: (record: MachineRecord) => Effect.Effect<void, HypervisorError>
    /**
     * Ends every microVM of this host that is not among `keep` (by machineId) and removes what they left in the
     * runtime directory. Called once, at the start of a daemon, before anything boots. Gives the machineIds ended.
     */
    readonly sweep: (keep: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<string>, HypervisorError>

    /**
     * Pauses the machine, writes its memory and devices beside `directory` and commits them: data and record on the
     * disk, record last, one rename, all while the machine is paused. Then the VMM is ended. A failure or an
     * interruption before the commit lets the machine run on and leaves no snapshot; after it the sleep is finished. The
     * guest is to be frozen before.
     *
     * An older snapshot in `directory` is gone in any case: the machine has run since.
     */
    readonly sleep: (machine: Machine, place: SnapshotPlace) => Effect.Effect<SnapshotRecord, SleepFailed>
    /**
     * Restores a machine from the snapshot in `directory` and lets it run. `spec` is that of the record with a machineId of
     * its own. The snapshot is verified whole before, and on no disk any more when the guest's first instruction runs.
     * The program of a guest that was frozen stays so until it is thawed: connect and thaw at once.
     *
     * Interrupted before the guest runs, it leaves the snapshot as it was and nothing else.
     */
    readonly wake: (
      spec: MachineSpec,
      place: SnapshotPlace
    ) => Effect.Effect<Machine, SnapshotUnusable | WakeFailed, Scope.Scope>
    /**
     * What lies in `directory`: none when there is no snapshot; fails when its record is damaged. Whether the files that go
     * with the record are whole is told by `wake`.
     */
    readonly snapshot: (directory: string) => Effect.Effect<Option.Option<SnapshotRecord>, HypervisorError>
    /** Removes the snapshot in `directory`, whole or half-written. No error when there is none. */
    readonly discard: (directory: string) => Effect.Effect<void, HypervisorError>
    /**
     * Removes from `snapshot_dir` snapshots of others than the apps in `keep`, and half-written ones; what cannot be one stays. Called once,
     * at the start of a daemon, after its microVMs are adopted. Gives the names of what it removed.
     */
    readonly sweepSnapshots: (
      snapshotDir: string,
      keep: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<string>, HypervisorError>
  }
>()("nibrunner/services/Hypervisor") {}
