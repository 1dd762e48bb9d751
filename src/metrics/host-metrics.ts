/**
 * What the host counts as it works, for the metrics page: what no state can tell afterwards. One for each daemon;
 * everything begins at 0 with it. What is counted of an app is forgotten when the app leaves the document.
 */
import { Cause, Clock, Effect, Exit } from "effect"
import type { AppId, HealthCheck } from "../document/schema.ts"
import type { SleepReason } from "../reconcile/idle.ts"
import { FetchObserver } from "../services/ArtifactStore.ts"
import { Convergence, type Ended, type Sight, type WorkPhase } from "./convergence.ts"
import { labelText } from "./exposition.ts"
import { Counter, Histogram } from "./instruments.ts"

/** Why an app is not up. */
export const failureReasons = [
  "refused",
  "no_slot",
  "layers",
  "volume",
  "boot",
  "exited",
  "never_answered",
  "out_of_restarts"
] as const
export type FailureReason = (typeof failureReasons)[number]

/** Why a start has to wait. */
export const startRefusals = ["no_room"] as const
export type StartRefusal = (typeof startRefusals)[number]

/** How an app came up that slept. */
export const wakeOutcomes = ["restored", "cold_boot"] as const
export type WakeOutcome = (typeof wakeOutcomes)[number]

/** How a sleep ended: `refused` when something came for the app. */
export const sleepOutcomes = ["slept", "refused", "failed"] as const
export type SleepOutcome = (typeof sleepOutcomes)[number]

/** Why an app that slept was not brought up. */
export const wakeRefusals = ["no_room", "would_not_start"] as const
export type WakeRefusal = (typeof wakeRefusals)[number]

/** Why a snapshot was not woken. */
export const discardReasons = ["missing", "damaged", "foreign", "not_restored"] as const
export type DiscardReason = (typeof discardReasons)[number]

export const probeOutcomes = ["passed", "wrong_status", "refused", "timed_out", "failed"] as const
export type ProbeOutcome = (typeof probeOutcomes)[number]

export const storageOperations = [
  "layer_fetch",
  "volume_provision",
  "volume_attach",
  "volume_teardown",
  "checkpoint_create",
  "checkpoint_delete",
  "export_write"
] as const
export type StorageOperation = (typeof storageOperations)[number]
export const operationOutcomes = ["ok", "failed"] as const

/**
 * What the host was doing while it reconciled: `change` takes up a document, `restart` looks at everything that an
 * earlier daemon left, `tick` reads a document that has not changed.
 */
export const reconcileTriggers = ["change", "restart", "tick"] as const
export type ReconcileTrigger = (typeof reconcileTriggers)[number]

/** Seconds. */
export const bounds = {
  reconcile: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
  converge: [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600],
  probe: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
  sleep: [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 30, 60, 120],
  wake: [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120],
  storage: [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900]
} as const

/** What is counted of one app. */
export class AppCounts {
  readonly failures = new Counter<FailureReason>()
  /** By the kind of its health check. */
  readonly unhealthy = new Counter<HealthCheck["kind"]>()
  readonly probes = new Counter()
  readonly wakes = new Counter()
  readonly sleeps = new Counter()
  lastWakeSeconds: number | undefined
  lastSleepSeconds: number | undefined
  readonly convergence = new Convergence()
}

/** Every count and distribution, to be read. */
export interface HostCounts {
  /** ms since 1970. */
  readonly startedAt: number
  readonly documentsUnreadable: number
  /** ms since 1970; 0 before the first. */
  readonly reportWrittenAt: number
  readonly reconciledAt: number
  readonly reconcile: Histogram
  readonly converge: Histogram
  readonly convergeOutcomes: Counter
  readonly probes: Histogram
  readonly storage: Histogram
  readonly layersCached: number
  readonly layerFetchBytes: number
  readonly startRefusals: Counter
  readonly sleepOutcomes: Counter
  readonly snapshot: Histogram
  readonly restore: Histogram
  readonly wake: Histogram
  readonly wakeRefusals: Counter
  readonly snapshotsDiscarded: Counter
  readonly apps: ReadonlyMap<AppId, AppCounts>
}

/** The effect's answer with the seconds that it took, by the monotonic side of the Clock. */
export const timed = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<[seconds: number, A], E, R> =>
  Effect.clockWith((clock) => {
    const began = clock.currentTimeNanosUnsafe()
    return Effect.map(effect, (answer) => [secondsSince(clock, began), answer])
  })

const secondsSince = (clock: Clock.Clock, began: bigint): number =>
  Number(clock.currentTimeNanosUnsafe() - began) / 1e9

/** Tells how long an effect took, however it ended. */
const measured = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
  tell: (seconds: number, exit: Exit.Exit<A, E>) => Effect.Effect<void>
): Effect.Effect<A, E, R> =>
  Effect.clockWith((clock) => {
    const began = clock.currentTimeNanosUnsafe()
    return Effect.onExit(effect, (exit) => tell(secondsSince(clock, began), exit))
  })

/** How an operation ended; undefined for one that was given up, which says nothing of the operation. */
const outcomeOf = (exit: Exit.Exit<unknown, unknown>): (typeof operationOutcomes)[number] | undefined => {
  if (Exit.isSuccess(exit)) return "ok"
  return Cause.hasInterruptsOnly(exit.cause) ? undefined : "failed"
}

/** Counts that begin at 0. */
export const makeHostMetrics = Effect.map(Clock.currentTimeMillis, (startedAt) => {
  const apps = new Map<AppId, AppCounts>()
  const counts = {
    startedAt,
    documentsUnreadable: 0,
    reportWrittenAt: 0,
    reconciledAt: 0,
    reconcile: new Histogram(bounds.reconcile),
    converge: new Histogram(bounds.converge),
    convergeOutcomes: new Counter(),
    probes: new Histogram(bounds.probe),
    storage: new Histogram(bounds.storage),
    layersCached: 0,
    layerFetchBytes: 0,
    startRefusals: new Counter(startRefusals.map((reason) => labelText({ reason }))),
    sleepOutcomes: new Counter(),
    snapshot: new Histogram(bounds.sleep),
    restore: new Histogram(bounds.wake),
    wake: new Histogram(bounds.wake),
    wakeRefusals: new Counter(wakeRefusals.map((reason) => labelText({ reason }))),
    snapshotsDiscarded: new Counter(discardReasons.map((reason) => labelText({ reason }))),
    apps
  }

  const seen = (appId: AppId): AppCounts => {
    const known = apps.get(appId)
    if (known !== undefined) return known
    const fresh = new AppCounts()
    apps.set(appId, fresh)
    return fresh
  }

  const ended = ({ outcome, cause, desiredState, seconds }: Ended) => {
    counts.convergeOutcomes.add(labelText({ desired_state: desiredState, cause, outcome }))
    for (const [phase, duration] of seconds) {
      counts.converge.observe(labelText({ phase, desired_state: desiredState, cause }), duration)
    }
  }

  const stored = (
    operation: StorageOperation,
    outcome: (typeof operationOutcomes)[number] | undefined,
    seconds: number
  ) => {
    if (outcome !== undefined) counts.storage.observe(labelText({ operation, outcome }), seconds)
  }

  return {
    counts: counts as HostCounts,

    documentUnreadable: Effect.sync(() => {
      counts.documentsUnreadable++
    }),
    /** @param at ms since 1970 */
    reconciled: (trigger: ReconcileTrigger, seconds: number, at: number) =>
      Effect.sync(() => {
        counts.reconcile.observe(labelText({ trigger }), seconds)
        counts.reconciledAt = at
      }),
    /** @param at ms since 1970 */
    reportWritten: (at: number) =>
      Effect.sync(() => {
        counts.reportWrittenAt = at
      }),

    /** The app as its document asks and as it is: begins to count it, and measures its way there. */
    appSeen: (appId: AppId, sight: Sight) =>
      Effect.sync(() => seen(appId).convergence.see(sight).forEach(ended)),
    /** The document names no instance of the app any more. */
    appForgotten: (appId: AppId) =>
      Effect.sync(() => {
        apps.get(appId)?.convergence.superseded().forEach(ended)
        apps.delete(appId)
      }),
    appFailed: (appId: AppId, reason: FailureReason) =>
      Effect.sync(() => apps.get(appId)?.failures.add(reason)),
    appUnhealthy: (appId: AppId, kind: HealthCheck["kind"]) =>
      Effect.sync(() => apps.get(appId)?.unhealthy.add(kind)),
    probed: (appId: AppId, kind: HealthCheck["kind"], result: ProbeOutcome, seconds: number) =>
      Effect.sync(() => {
        counts.probes.observe(labelText({ result }), seconds)
        apps.get(appId)?.probes.add(labelText({ kind, result }))
      }),
    /** How an app comes up that slept. */
    woken: (appId: AppId, outcome: WakeOutcome) =>
      Effect.sync(() => apps.get(appId)?.wakes.add(labelText({ outcome }))),
    /** A woken app has passed its health check, so long after the first came for it. */
    answeredAfterWake: (appId: AppId, outcome: WakeOutcome, seconds: number) =>
      Effect.sync(() => {
        counts.wake.observe(labelText({ outcome }), seconds)
        const app = apps.get(appId)
        if (app !== undefined) app.lastWakeSeconds = seconds
      }),
    wakeRefused: (reason: WakeRefusal) => Effect.sync(() => counts.wakeRefusals.add(labelText({ reason }))),
    /** How a sleep ended. */
    slept: (appId: AppId, outcome: SleepOutcome, reason: SleepReason) =>
      Effect.sync(() => {
        apps.get(appId)?.sleeps.add(labelText({ outcome }))
        counts.sleepOutcomes.add(labelText({ reason, outcome }))
      }),
    /** Measures a sleep that succeeds. */
    snapshotTaken: <A, E, R>(appId: AppId, sleep: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
      measured(sleep, (seconds, exit) =>
        Effect.sync(() => {
          if (!Exit.isSuccess(exit)) return
          counts.snapshot.observe("", seconds)
          const app = apps.get(appId)
          if (app !== undefined) app.lastSleepSeconds = seconds
        })
      ),
    /** Measures a restore that succeeds. */
    restored: <A, E, R>(restore: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
      measured(restore, (seconds, exit) =>
        Effect.sync(() => {
          if (Exit.isSuccess(exit)) counts.restore.observe("", seconds)
        })
      ),
    snapshotDiscarded: (reason: DiscardReason) =>
      Effect.sync(() => counts.snapshotsDiscarded.add(labelText({ reason }))),
    startRefused: (reason: StartRefusal) =>
      Effect.sync(() => counts.startRefusals.add(labelText({ reason }))),

    /** Measures an operation on volumes, checkpoints or exports. */
    storage: <A, E, R>(
      operation: Exclude<StorageOperation, "layer_fetch">,
      effect: Effect.Effect<A, E, R>
    ): Effect.Effect<A, E, R> =>
      measured(effect, (seconds, exit) => Effect.sync(() => stored(operation, outcomeOf(exit), seconds))),
    /** Measures a phase of the app's way to what is asked. */
    phase: <A, E, R>(
      appId: AppId,
      phase: WorkPhase,
      effect: Effect.Effect<A, E, R>
    ): Effect.Effect<A, E, R> =>
      measured(effect, (seconds) =>
        Effect.map(Clock.currentTimeMillis, (at) => apps.get(appId)?.convergence.worked(phase, seconds, at))
      ),
    /** Counts what the preparation of one layer fetches, or that it fetches nothing. */
    layer: <A, E, R>(prepare: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
      Effect.suspend(() => {
        let fetched = false
        return prepare.pipe(
          Effect.tap(() =>
            Effect.sync(() => {
              if (!fetched) counts.layersCached++
            })
          ),
          Effect.provideService(FetchObserver, ({ bytes, seconds, exit }) =>
            Effect.sync(() => {
              fetched = true
              counts.layerFetchBytes += bytes
              stored("layer_fetch", outcomeOf(exit), seconds)
            })
          )
        )
      })
  }
})

export type HostMetrics = Effect.Success<typeof makeHostMetrics>
