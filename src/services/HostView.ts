/**
 * The host as one who only looks at it sees it: nothing is written, beside a running daemon or without one.
 */
import { Context, type Effect, type Option } from "effect"
import type { HostLimits } from "../reconcile/refusal.ts"
import type { LockUnusable } from "./HostDirectories.ts"
import type { AcceptedDocument, AppRecord, HostStateError, VolumeRecord } from "./HostState.ts"
import type { MachineRecord } from "./Hypervisor.ts"

/** The host's notes at one moment. */
export interface HostNotes {
  readonly document: Option.Option<AcceptedDocument>
  readonly apps: ReadonlyArray<AppRecord>
  readonly volumes: ReadonlyArray<VolumeRecord>
}

export class HostView extends Context.Service<
  HostView,
  {
    /** None on a host on which no daemon has run yet. */
    readonly notes: Effect.Effect<Option.Option<HostNotes>, HostStateError>
    /** The document in force alone; none when there is none. */
    readonly document: Effect.Effect<Option.Option<AcceptedDocument>, HostStateError>
    /** Whether a daemon runs on this host now; fails for who may not know. */
    readonly daemonRuns: Effect.Effect<boolean, LockUnusable>
    /** Whether the microVM of a record runs now. */
    readonly runs: (record: MachineRecord) => Effect.Effect<boolean>
    readonly limits: HostLimits
    /** `max_apps`. */
    readonly maxApps: number
  }
>()("nibrunner/services/HostView") {}
