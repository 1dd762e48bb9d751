/** A proxy in memory: it keeps the routes, and answers requests that a test makes up. */
import { Clock, Deferred, Effect, FiberSet, Layer, SubscriptionRef } from "effect"
import type { AppId } from "../../src/document/schema.ts"
import { Histogram } from "../../src/metrics/instruments.ts"
import {
  type AppRoute,
  type AppTraffic,
  type AsleepTarget,
  Proxy,
  type ProxyOutcomes,
  type RawTraffic,
  REQUEST_BOUNDS,
  type UnavailableTarget,
  type UpTarget
} from "../../src/services/Proxy.ts"

/** What a caller gets. */
export type MemoryAnswer =
  /** The app's own answer, from this address. */
  | { readonly kind: "app"; readonly appId: AppId; readonly host: string; readonly port: number }
  /** One that the proxy gives itself. */
  | {
      readonly kind: "proxy"
      readonly status: 404 | 502 | 503
      readonly reason: string
      readonly retryAfter?: number | undefined
    }

/** A request that the app has not answered yet. */
export interface MemoryRequest {
  readonly answer: MemoryAnswer
  /** Lets the app answer, and gives what the caller gets: 502 when the app's connections have ended. Safe to repeat. */
  readonly finish: Effect.Effect<MemoryAnswer>
}

/** A connection to a raw port. */
export interface MemoryConnection {
  /** Where it arrived; undefined when it was refused. */
  readonly reached: { readonly appId: AppId; readonly host: string; readonly port: number } | undefined
  /** Ends it; safe to repeat. */
  readonly close: Effect.Effect<void>
}

/** How a caller names the app that it wants. */
export type MemoryAddress = { readonly hostname: string } | { readonly hostPort: number }

interface Waiter {
  readonly appId: AppId
  readonly predicate: (route: AppRoute | undefined) => boolean
  readonly found: Deferred.Deferred<void>
}

type Counts = {
  -readonly [count in
    | "open"
    | "held"
    | "arrivals"
    | "routed"
    | "answerSeconds"
    | "refused"
    | "unreachable"]: number
} & {
  readonly answers: { 1: number; 2: number; 3: number; 4: number; 5: number }
  readonly tcp: { -readonly [count in keyof RawTraffic]: number }
}

type Woken = Deferred.Deferred<UpTarget | UnavailableTarget>

/** What waits for one sleeping app. */
interface Sleep {
  readonly wake: AsleepTarget["wake"]
  readonly held: Set<Woken>
  running: boolean
}

/** What outlives the layer: the test reads and scripts it. */
export interface ProxyWorld {
  /** The routes in force. */
  readonly routes: Map<AppId, AppRoute>
  /** Every change, oldest first; undefined where a route was removed. */
  readonly changes: Array<{ readonly appId: AppId; readonly route: AppRoute | undefined }>
  /** Addresses, as `host:port`, where nothing listens. */
  readonly deaf: Set<string>
  readonly outcomes: { -readonly [outcome in keyof ProxyOutcomes]: number }
  joinedWakes: number
  readonly traffic: Map<AppId, Counts>
  readonly requestSeconds: Histogram
  readonly waiters: Set<Waiter>
  readonly sleeps: Map<AppId, Sleep>
  /** What ends each of an app's open requests and connections. */
  readonly ends: Map<AppId, Set<() => void>>
  /** Why ports of apps cannot be listened on, as if other programs had them. */
  readonly refusedPorts: SubscriptionRef.SubscriptionRef<ReadonlyMap<AppId, ReadonlyArray<string>>>
  /** Where wakes run: the scope of the layer that was made last. */
  fork: ((wake: Effect.Effect<void>) => void) | undefined
}

export const makeProxyWorld = (): ProxyWorld => ({
  routes: new Map(),
  changes: [],
  deaf: new Set(),
  outcomes: { served: 0, noSuchHost: 0, wrongHost: 0, refused: 0, unreachable: 0 },
  joinedWakes: 0,
  traffic: new Map(),
  requestSeconds: new Histogram(REQUEST_BOUNDS),
  waiters: new Set(),
  sleeps: new Map(),
  ends: new Map(),
  refusedPorts: Effect.runSync(SubscriptionRef.make<ReadonlyMap<AppId, ReadonlyArray<string>>>(new Map())),
  fork: undefined
})

/** Waits until the app's route, undefined when it has none, satisfies the predicate. Waits for ever. */
export const awaitRoute = (
  world: ProxyWorld,
  appId: AppId,
  predicate: (route: AppRoute | undefined) => boolean
): Effect.Effect<void> =>
  Effect.suspend(() => {
    if (predicate(world.routes.get(appId))) return Effect.void
    const waiter: Waiter = { appId, predicate, found: Deferred.makeUnsafe() }
    world.waiters.add(waiter)
    return Deferred.await(waiter.found).pipe(Effect.ensuring(Effect.sync(() => world.waiters.delete(waiter))))
  })

/**
 * Begins a request; one that reaches an app stays open until it is finished. While the app sleeps this waits; interrupted,
 * it is a caller that leaves.
 */
export const openRequest = (world: ProxyWorld, address: MemoryAddress): Effect.Effect<MemoryRequest> =>
  Effect.clockWith((clock) => {
    const begunAt = clock.currentTimeMillisUnsafe()
    const route = findRoute(world, address)
    if (route === undefined) {
      world.outcomes.noSuchHost++
      return Effect.succeed(answered({ kind: "proxy", status: 404, reason: "no app here has this address" }))
    }
    const counts = countsOf(world, route.appId)
    counts.arrivals++
    const { target } = route
    if (target.kind === "unavailable") return Effect.succeed(unavailable(world, counts, target))
    counts.routed++
    counts.open++
    const close = () => {
      counts.open--
      forgetIfQuiet(world, route.appId)
    }
    const awake = target.kind === "up" ? Effect.succeed(target) : held(world, route.appId, counts)
    return awake.pipe(
      Effect.map((woken) => {
        if (woken.kind === "up") return forwarded(world, route.appId, counts, woken, begunAt, close)
        close()
        return unavailable(world, counts, woken)
      }),
      Effect.onInterrupt(() => Effect.sync(close))
    )
  })

const answered = (answer: MemoryAnswer): MemoryRequest => ({ answer, finish: Effect.succeed(answer) })

/** Something of the app is open that `end` ends; gives what is to be run when it is open no more. */
const opened = (world: ProxyWorld, appId: AppId, end: () => void): (() => void) => {
  const ends = world.ends.get(appId) ?? new Set()
  world.ends.set(appId, ends)
  ends.add(end)
  return () => void ends.delete(end)
}

const unavailable = (
  world: ProxyWorld,
  counts: Counts,
  { reason, retryAfter }: UnavailableTarget
): MemoryRequest => {
  world.outcomes.refused++
  counts.refused++
  return answered({ kind: "proxy", status: 503, reason, retryAfter })
}

const forwarded = (
  world: ProxyWorld,
  appId: AppId,
  counts: Counts,
  { host, port }: UpTarget,
  begunAt: number,
  close: () => void
): MemoryRequest => {
  if (world.deaf.has(`${host}:${port}`)) {
    close()
    world.outcomes.unreachable++
    counts.unreachable++
    return answered({ kind: "proxy", status: 502, reason: "the app does not accept connections" })
  }
  let outcome: MemoryAnswer | undefined
  const ended = opened(world, appId, () => {
    outcome = { kind: "proxy", status: 502, reason: "the app stopped before it answered" }
    ended()
    world.outcomes.unreachable++
    counts.unreachable++
    close()
  })
  const answer: MemoryAnswer = { kind: "app", appId, host, port }
  return {
    answer,
    finish: Effect.map(Clock.currentTimeMillis, (now) => {
      if (outcome !== undefined) return outcome
      outcome = answer
      ended()
      const seconds = (now - begunAt) / 1000
      counts.answers[2]++
      counts.answerSeconds += seconds
      world.requestSeconds.observe("", seconds)
      world.outcomes.served++
      close()
      return answer
    })
  }
}

/** Waits for the app's wake, which it begins when no other has. */
const held = (world: ProxyWorld, appId: AppId, counts: Counts): Effect.Effect<UpTarget | UnavailableTarget> =>
  Effect.suspend(() => {
    const woken: Woken = Deferred.makeUnsafe()
    counts.held++
    const sleep = world.sleeps.get(appId)
    sleep?.held.add(woken)
    if (sleep?.running === true) world.joinedWakes++
    ask(world, appId)
    return Deferred.await(woken).pipe(
      Effect.ensuring(
        Effect.sync(() => {
          counts.held--
          world.sleeps.get(appId)?.held.delete(woken)
        })
      )
    )
  })

const NOT_WOKEN: UnavailableTarget = { kind: "unavailable", reason: "the app could not be woken" }

const ask = (world: ProxyWorld, appId: AppId): void => {
  const sleep = world.sleeps.get(appId)
  if (sleep === undefined || sleep.running || sleep.held.size === 0) return
  sleep.running = true
  world.fork?.(
    Effect.map(
      Effect.catchCause(sleep.wake, () => Effect.succeed(NOT_WOKEN)),
      (target) => {
        sleep.running = false
        const route = world.routes.get(appId)
        if (world.sleeps.get(appId) !== sleep || route === undefined) return
        if (target.kind === "up") putRoute(world, { ...route, target })
        else release(sleep, target)
      }
    )
  )
}

const release = (sleep: Sleep | undefined, target: UpTarget | UnavailableTarget): void => {
  for (const woken of sleep?.held ?? []) Deferred.doneUnsafe(woken, Effect.succeed(target))
  sleep?.held.clear()
}

/** Puts the target in force for what is held. */
const setTarget = (world: ProxyWorld, appId: AppId, target: AppRoute["target"]): void => {
  const before = world.sleeps.get(appId)
  if (target.kind !== "asleep") {
    world.sleeps.delete(appId)
    release(before, target)
  } else if (before?.wake !== target.wake) {
    world.sleeps.set(appId, { wake: target.wake, held: before?.held ?? new Set(), running: false })
    ask(world, appId)
  }
}

const putRoute = (world: ProxyWorld, route: AppRoute): void => {
  const isTaken = (hostname: string) => route.hostnames.includes(hostname)
  for (const other of world.routes.values()) {
    if (!other.hostnames.some(isTaken)) continue
    const hostnames = other.hostnames.filter((hostname) => !isTaken(hostname))
    world.routes.set(other.appId, { ...other, hostnames })
  }
  world.routes.set(route.appId, route)
  countsOf(world, route.appId)
  setTarget(world, route.appId, route.target)
  changed(world, route.appId, route)
}

/** Makes a request that the app answers at once. */
export const request = (world: ProxyWorld, address: MemoryAddress): Effect.Effect<MemoryAnswer> =>
  Effect.flatMap(openRequest(world, address), ({ finish }) => finish)

/** Connects to a raw port. While the app sleeps this waits; interrupted, it is a client that leaves. */
export const openConnection = (world: ProxyWorld, rawPort: number): Effect.Effect<MemoryConnection> =>
  Effect.suspend(() => {
    const refused: MemoryConnection = { reached: undefined, close: Effect.void }
    const found = findRawPort(world, rawPort)
    if (found === undefined) return Effect.succeed(refused)
    const { route, guestPort } = found
    const { appId, target } = route
    const counts = countsOf(world, appId)
    counts.arrivals++
    if (target.kind === "unavailable") {
      counts.tcp.down++
      return Effect.succeed(refused)
    }
    counts.open++
    counts.tcp.open++
    let closed = false
    let ended = () => {}
    const close = Effect.sync(() => {
      if (closed) return
      closed = true
      ended()
      counts.open--
      counts.tcp.open--
      forgetIfQuiet(world, appId)
    })
    const awake = target.kind === "up" ? Effect.succeed(target) : held(world, appId, counts)
    return awake.pipe(
      Effect.flatMap((woken) => {
        if (woken.kind === "unavailable") {
          counts.tcp.wakeRefused++
          return Effect.as(close, refused)
        }
        if (world.deaf.has(`${woken.host}:${guestPort}`)) {
          counts.tcp.notTaken++
          return Effect.as(close, refused)
        }
        counts.tcp.relayed++
        ended = opened(world, appId, () => Effect.runSync(close))
        return Effect.succeed({ reached: { appId, host: woken.host, port: guestPort }, close })
      }),
      Effect.onInterrupt(() => close)
    )
  })

const findRawPort = (world: ProxyWorld, rawPort: number) => {
  for (const route of world.routes.values()) {
    const port = route.rawPorts?.find(({ hostPort }) => hostPort === rawPort)
    if (port !== undefined) return { route, guestPort: port.guestPort }
  }
  return undefined
}

/** Wakes run in the layer's scope. */
export const layerProxyMemory = (world: ProxyWorld) =>
  Layer.effect(
    Proxy,
    Effect.gen(function* () {
      const wakes = yield* FiberSet.make<void>()
      const fork = yield* FiberSet.runtime(wakes)()
      world.fork = (wake) => void fork(wake)
      return {
        setRoute: (route) => Effect.sync(() => putRoute(world, route)),
        removeRoute: (appId) =>
          Effect.sync(() => {
            world.routes.delete(appId)
            setTarget(world, appId, { kind: "unavailable", reason: "the app was removed" })
            forgetIfQuiet(world, appId)
            changed(world, appId, undefined)
          }),
        endConnections: (appId) =>
          Effect.sync(() => {
            for (const end of [...(world.ends.get(appId) ?? [])]) end()
          }),
        routesComplete: Effect.void,
        traffic: Effect.sync(() => ({
          outcomes: { ...world.outcomes },
          requestSeconds: world.requestSeconds.distributionOf(""),
          handshakes: { completed: 0, failed: 0, timedOut: 0 },
          joinedWakes: world.joinedWakes,
          apps: new Map([...world.traffic].map(([appId, counts]) => [appId, trafficOf(counts)]))
        })),
        refusedPorts: world.refusedPorts,
        address: { host: "127.0.0.1", port: 80 }
      }
    })
  )

const noRaw = (): Counts["tcp"] => ({
  open: 0,
  relayed: 0,
  down: 0,
  wakeRefused: 0,
  notTaken: 0,
  bytesIn: 0,
  bytesOut: 0,
  dropped: 0
})

const trafficOf = (counts: Counts): AppTraffic => ({
  ...counts,
  answers: { ...counts.answers },
  tcp: { ...counts.tcp },
  udp: noRaw()
})

const findRoute = (world: ProxyWorld, address: MemoryAddress): AppRoute | undefined =>
  [...world.routes.values()].find((route) =>
    "hostname" in address
      ? route.hostnames.includes(address.hostname.toLowerCase())
      : route.hostPort === address.hostPort
  )

const countsOf = (world: ProxyWorld, appId: AppId): Counts => {
  const counts = world.traffic.get(appId) ?? {
    open: 0,
    held: 0,
    arrivals: 0,
    routed: 0,
    answerSeconds: 0,
    refused: 0,
    unreachable: 0,
    answers: { 1: 0, 2: 0, 3: 0, 4: 0, 5: 0 },
    tcp: noRaw()
  }
  world.traffic.set(appId, counts)
  return counts
}

const forgetIfQuiet = (world: ProxyWorld, appId: AppId): void => {
  if (!world.routes.has(appId) && world.traffic.get(appId)?.open === 0) world.traffic.delete(appId)
}

const changed = (world: ProxyWorld, appId: AppId, route: AppRoute | undefined): void => {
  world.changes.push({ appId, route })
  for (const waiter of world.waiters) {
    if (waiter.appId === appId && waiter.predicate(route)) Deferred.doneUnsafe(waiter.found, Effect.void)
  }
}
