/**
 * The conversation with a guest's PID 1. Every byte from the guest is data: whatever it says, nothing but its
 * own app is affected.
 */
import { type Cause, Context, type Effect, type Queue, Schema, type Scope } from "effect"
import type { RestartPolicy } from "../document/schema.ts"
import type { Machine } from "./Hypervisor.ts"
import type { DatagramPath } from "./Proxy.ts"

/** What PID 1 is told to run. It reaches the guest by the channel alone and never lies on a disk. */
export interface BootSpec {
  readonly hostname: string
  readonly network: { readonly address: string; readonly prefixLength: number; readonly gateway: string }
  readonly nameservers: ReadonlyArray<string>
  /** How many layer drives follow the base; the volume's drive is the last. */
  readonly layerCount: number
  readonly program: string
  readonly args: ReadonlyArray<string>
  readonly workingDirectory: string
  /** The whole environment of the program, references filled in, in order. Secret: never logged. */
  readonly environment: ReadonlyArray<readonly [name: string, value: string]>
  readonly restartPolicy: RestartPolicy
  /** The host's time when the spec was handed over: ms since 1970. */
  readonly hostTime: number
}

/** Where the guest is in its life, as its PID 1 says. */
export type GuestPhase =
  | "awaiting-spec"
  | "starting"
  | "running"
  | "backing-off"
  | "stopping"
  | "failed"
  /** The program is frozen, or about to be: after a `freeze`, and after a wake, until it is thawed. */
  | "frozen"

export type ProgramExit = { readonly code: number } | { readonly signal: number }

/** What a guest tells by itself. */
export type GuestEvent =
  | { readonly kind: "output"; readonly stream: "stdout" | "stderr"; readonly bytes: Uint8Array }
  /** So many bytes of output were lost, because the host did not read in time. */
  | { readonly kind: "gap"; readonly bytes: number }
  /** The program runs (again). */
  | { readonly kind: "started" }
  /** The program ended and will be started again after `backoffMs`. `attempt` counts from 1 since the budget was earned back. */
  | {
      readonly kind: "restarting"
      readonly attempt: number
      readonly budget: number
      /** Restarts since the boot: tells a report that is heard twice from a second restart. */
      readonly total: number
      readonly exit: ProgramExit
      readonly backoffMs: number
      readonly reason: string
    }
  /** The guest gives up and powers off: a sentence, for instance that the program is not in any layer. */
  | { readonly kind: "failed"; readonly reason: string }

/** What a connection attempt inside the guest came to. */
export type PortProbe = "accepted" | "refused" | "timed-out" | "failed"

/**
 * What a guest says of itself. Data of a stranger: each number is a whole one from 0 to 2^53 - 1, no part is
 * larger than its whole, and nothing else is known of it.
 */
export interface GuestUsage {
  /** What the volume's filesystem holds when full, and what is in it; both 0 until the volume is mounted. */
  readonly volumeTotalBytes: number
  readonly volumeUsedBytes: number
  /** `MemTotal`, and of it what is not `MemAvailable`. */
  readonly memoryTotalBytes: number
  readonly memoryUsedBytes: number
  /** Of all vCPUs since the boot, in `USER_HZ` (100 a second): all of their time, and what was neither idle nor waiting. */
  readonly cpuTotalTicks: number
  readonly cpuBusyTicks: number
  /** Through the network interface since the boot, headers included: what reached the guest, and what it sent. */
  readonly receivedBytes: number
  readonly sentBytes: number
}

/** The guest cannot be spoken to. */
export class GuestError extends Schema.TaggedError<GuestError>()("GuestError", {
  operation: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the guest could not be asked to ${this.operation}: ${this.reason}`
  }
}

/**
 * How a volume's freeze ended. `held`: it was frozen until it was thawed now, and nothing of it has changed in between.
 * `lapsed`: it was not, or no longer; what was copied of it meanwhile may be torn.
 */
export type VolumeThaw = "held" | "lapsed"

/** One daemon's conversation with one guest; reconnects by itself while the VMM runs. */
export interface GuestSession {
  /** Names this conversation in the app's log. */
  readonly sessionId: string
  /** The phase that the guest reported when the conversation began. */
  readonly phase: GuestPhase
  /**
   * In the order in which the guest told them. Ends when the scope closes, or when the VMM has gone and all that
   * it had said is taken: read to the end before judging why a guest ended. Bounded: a full queue stops reading,
   * never the guest.
   */
  readonly events: Queue.Dequeue<GuestEvent, Cause.Done>
  /** Hands the boot spec over and waits for the guest to take it. */
  readonly handOver: (spec: BootSpec) => Effect.Effect<void, GuestError>
  /** Connects to a TCP port inside the guest, from inside the guest. */
  readonly probe: (port: number, timeoutMs: number) => Effect.Effect<PortProbe, GuestError>
  /** Asks what the guest uses; fails when it has said nothing in `timeoutMs`, or nothing that can be. */
  readonly usage: (timeoutMs: number) => Effect.Effect<GuestUsage, GuestError>
  /**
   * Asks for an orderly end: SIGTERM to the program, SIGKILL after `graceMs`, volumes unmounted, power off.
   * Succeeds when the guest has taken the request; `Machine.exit` tells when it is done.
   */
  readonly shutdown: (graceMs: number) => Effect.Effect<void, GuestError>
  /**
   * Makes the guest ready for sleep: everything that the program started stands still, unknown to it, and what was
   * written to the volume is on the disk. Refused unless the program runs. `leaseMs` from now (of the guest's own time,
   * which stands still while the machine sleeps) the guest thaws by itself, in case the host has gone. After a
   * failure or an interruption the guest may be frozen nonetheless: thaw it.
   */
  readonly freeze: (leaseMs: number) => Effect.Effect<void, GuestError>
  /**
   * Sets the guest's clock to the host's as it is when the guest is told, then lets the program run on. Harmless when
   * it is not frozen. Due after each wake, before anything else is asked, and when a guest is adopted `frozen`.
   */
  readonly thaw: Effect.Effect<void, GuestError>
  /**
   * Makes what lies on the volume's device whole, and keeps it so: what was written is on it, and whoever writes waits.
   * The rest of the guest goes on, and whoever does not write notices nothing. Refused before the program runs for the
   * first time, while a `freeze` holds (which is refused while this does), and by a guest whose image is too old.
   * `leaseMs` after it was asked (of the guest's own time) the guest thaws the volume by itself; so it does when it
   * stops. After a failure or an interruption the volume may be frozen nonetheless: thaw it.
   */
  readonly freezeVolume: (leaseMs: number) => Effect.Effect<void, GuestError>
  /**
   * Thaws the volume and tells whether it was frozen until now; `lapsed` too when that cannot be known, because the
   * connection was lost over the question. Harmless when it is not frozen: due when a guest is adopted, whose last
   * daemon may have frozen it.
   */
  readonly thawVolume: Effect.Effect<VolumeThaw, GuestError>
  /**
   * Carries UDP to the program's ports, from within the guest: it sees the guest's own address, with a port for each
   * client. The same object for as long as the session. Datagrams are dropped when there is no room for them, while the
   * guest cannot be spoken to, and by a guest whose image is too old.
   */
  readonly datagrams: DatagramPath
}

export class Guest extends Context.Service<
  Guest,
  {
    /** Connects and exchanges hellos; waits for PID 1 at most `timeoutMs`. The session ends with the scope, the guest does not. */
    readonly connect: (
      machine: Machine,
      timeoutMs: number
    ) => Effect.Effect<GuestSession, GuestError, Scope.Scope>
  }
>()("nibrunner/services/Guest") {}
