/**
 * What comes for the apps that are up, and who has been quiet for long enough to sleep. The reading has a clock of its
 * own: nothing that is slow, a measurement or a sleep, makes it old.
 */
import { Clock, Effect, Schedule } from "effect"
import type { AppId, DesiredInstance } from "../document/schema.ts"
import type { HostContext } from "./host-context.ts"
import { type Quiet, type SleepReason, sleepPolicy, sleepReason, sleepRetries } from "./idle.ts"
import { retryDelayMs } from "./retry-delay.ts"

const readEveryMs = 2_000

/** What has come for an app so far, and what of it is still there. */
export interface Arrivals {
  readonly arrivals: number
  readonly open: number
  /** Those among `open` that wait for the app to be up. */
  readonly held: number
}

/** One app that is up. */
export interface AppActivity extends Quiet {
  lastActiveAt: number
  readAt: number
  open: number
  /** As it was read last; undefined before the first reading. */
  arrivals: number | undefined
  /** Sleeps that failed in a row, with no traffic since. */
  failures: number
  /** ms since 1970: no sleep is tried before. */
  retryAt: number
  /** The app's fiber was told that it is due, and has not answered. */
  asked: boolean
}

interface Watched {
  readonly activity: AppActivity
  /** As the document has it now. */
  readonly instance: () => DesiredInstance | undefined
  readonly isDue: (reason: SleepReason) => Effect.Effect<void>
}

/** The apps that are up, by app. */
export class Activity {
  readonly #apps = new Map<AppId, Watched>()

  /** Watches an app from now on, as if something had come for it just now. Times in ms since 1970. */
  watch(appId: AppId, startedAt: number, now: number, how: Omit<Watched, "activity">): void {
    const activity: AppActivity = {
      startedAt,
      lastActiveAt: now,
      readAt: now,
      open: 0,
      arrivals: undefined,
      failures: 0,
      retryAt: 0,
      asked: false
    }
    this.#apps.set(appId, { ...how, activity })
  }

  unwatch(appId: AppId): void {
    this.#apps.delete(appId)
  }

  of(appId: AppId): AppActivity | undefined {
    return this.#apps.get(appId)?.activity
  }

  get size(): number {
    return this.#apps.size
  }

  /** Takes a reading; what an app had before it was first read does not count as news. */
  read(arrivalsOf: (appId: AppId) => Arrivals, now: number): void {
    for (const [appId, { activity }] of this.#apps) {
      const { arrivals, open } = arrivalsOf(appId)
      const moved = open > 0 || (activity.arrivals !== undefined && activity.arrivals !== arrivals)
      activity.arrivals = arrivals
      activity.open = open
      activity.readAt = now
      if (!moved) continue
      activity.lastActiveAt = now
      activity.failures = 0
      activity.retryAt = 0
    }
  }

  /** Those that are due to sleep and not told yet. */
  due(now: number): ReadonlyArray<readonly [Watched, SleepReason]> {
    return [...this.#apps.values()].flatMap((watched) => {
      const { activity, instance } = watched
      const desired = instance()
      if (desired === undefined || activity.asked || now < activity.retryAt) return []
      const reason = sleepReason(sleepPolicy(desired), activity, now)
      return reason === undefined ? [] : [[watched, reason] as const]
    })
  }

  /** A sleep of the app has failed: the next one waits. Gives the time from which it is tried, in ms since 1970. */
  failed(appId: AppId, now: number): number {
    const activity = this.of(appId)
    if (activity === undefined) return now
    activity.failures++
    activity.retryAt = now + retryDelayMs(activity.failures, sleepRetries)
    return activity.retryAt
  }
}

const nothing: Arrivals = { arrivals: 0, open: 0, held: 0 }

/** What has come for each app, through the proxy and past it. Fails when part of it cannot be told. */
export const readArrivals = Effect.fnUntraced(function* ({ proxy, network, statuses }: HostContext) {
  const past = yield* network.traffic
  const { apps } = yield* proxy.traffic
  return (appId: AppId): Arrivals => {
    const { arrivals, open, held } = apps.get(appId) ?? nothing
    const slot = statuses.get(appId)?.slot
    const flows = slot === undefined ? undefined : past.get(slot)
    return flows === undefined
      ? { arrivals, open, held }
      : { arrivals: arrivals + flows.arrivals, open: open + flows.openFlows, held }
  }
})

/** Reads the traffic and tells the apps that are due, until it is interrupted. */
export const runActivity = (host: HostContext) => {
  let complained = false
  const read = Effect.gen(function* () {
    const arrivalsOf = yield* readArrivals(host)
    host.activity.read(arrivalsOf, yield* Clock.currentTimeMillis)
    complained = false
  }).pipe(
    // An old reading puts nobody to sleep who is to be quiet for that.
    Effect.catch((error) => {
      if (complained) return Effect.void
      complained = true
      return Effect.logWarning(
        `apps are not put to sleep for being quiet, as that cannot be told: ${error.message}`
      )
    })
  )
  return Effect.gen(function* () {
    if (host.activity.size === 0) return
    yield* read
    for (const [{ activity, isDue }, reason] of host.activity.due(yield* Clock.currentTimeMillis)) {
      activity.asked = true
      yield* isDue(reason)
    }
  }).pipe(Effect.repeat(Schedule.spaced(readEveryMs)))
}
