/**
 * microVMs. The daemon's death stops none of them: what a daemon holds of a microVM is an attachment in a
 * Scope, and closing the scope lets go. Only `stop` and `kill` end a microVM.
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

/** This daemon's attachment to a microVM that runs. */
export interface Machine {
  readonly record: MachineRecord
  /** Done when the VMM has ended, whoever ended it. */
  readonly exit: Deferred.Deferred<MachineExit>
  readonly channel: GuestTransport
  /** Bytes of host memory that the VMM holds (resident set); none when it cannot be told. */
  readonly residentBytes: Effect.Effect<Option.Option<number>>
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
  }
>()("nibrunner/services/Hypervisor") {}
