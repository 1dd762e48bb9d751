/** A proxy in memory: it keeps the routes, and answers requests that a test makes up. */
import { Deferred, Effect, Layer } from "effect"
import type { AppId } from "../../src/document/schema.ts"
import { type AppRoute, Proxy, type ProxyOutcomes } from "../../src/services/Proxy.ts"

/** What a caller gets. */
export type MemoryAnswer =
  /** The app's own answer, from this address. */
  | { readonly kind: "app"; readonly appId: AppId; readonly host: string; readonly port: number }
  /** One that the proxy gives itself. */
  | { readonly kind: "proxy"; readonly status: 404 | 502 | 503; readonly reason: string }

/** A request that the app has not answered yet. */
export interface MemoryRequest {
  readonly answer: MemoryAnswer
  /** Lets the app answer; safe to repeat. */
  readonly finish: Effect.Effect<void>
}

/** How a caller names the app that it wants. */
export type MemoryAddress = { readonly hostname: string } | { readonly hostPort: number }

interface Waiter {
  readonly appId: AppId
  readonly predicate: (route: AppRoute | undefined) => boolean
  readonly found: Deferred.Deferred<void>
}

interface Counts {
  open: number
  routed: number
  readonly answers: { 1: number; 2: number; 3: number; 4: number; 5: number }
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
  readonly traffic: Map<AppId, Counts>
  readonly waiters: Set<Waiter>
}

export const makeProxyWorld = (): ProxyWorld => ({
  routes: new Map(),
  changes: [],
  deaf: new Set(),
  outcomes: { served: 0, noSuchHost: 0, wrongHost: 0, refused: 0, unreachable: 0 },
  traffic: new Map(),
  waiters: new Set()
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

/** Begins a request; one that reaches an app stays open until it is finished. */
export const openRequest = (world: ProxyWorld, address: MemoryAddress): Effect.Effect<MemoryRequest> =>
  Effect.sync(() => {
    const route = findRoute(world, address)
    if (route === undefined) return refused(world, "noSuchHost", 404, "no app here has this address")
    const { target } = route
    if (target.kind === "unavailable") return refused(world, "refused", 503, target.reason)
    const counts = countsOf(world, route.appId)
    counts.routed++
    if (world.deaf.has(`${target.host}:${target.port}`)) {
      return refused(world, "unreachable", 502, "the app does not accept connections")
    }
    counts.open++
    let finished = false
    return {
      answer: { kind: "app", appId: route.appId, host: target.host, port: target.port },
      finish: Effect.sync(() => {
        if (finished) return
        finished = true
        counts.open--
        counts.answers[2]++
        world.outcomes.served++
        forgetIfQuiet(world, route.appId)
      })
    }
  })

/** Makes a request that the app answers at once. */
export const request = (world: ProxyWorld, address: MemoryAddress): Effect.Effect<MemoryAnswer> =>
  Effect.flatMap(openRequest(world, address), ({ answer, finish }) => Effect.as(finish, answer))

export const layerProxyMemory = (world: ProxyWorld) =>
  Layer.succeed(Proxy, {
    setRoute: (route) =>
      Effect.sync(() => {
        for (const other of world.routes.values()) {
          const hostnames = other.hostnames.filter((hostname) => !route.hostnames.includes(hostname))
          world.routes.set(other.appId, { ...other, hostnames })
        }
        world.routes.set(route.appId, route)
        countsOf(world, route.appId)
        changed(world, route.appId, route)
      }),
    removeRoute: (appId) =>
      Effect.sync(() => {
        world.routes.delete(appId)
        forgetIfQuiet(world, appId)
        changed(world, appId, undefined)
      }),
    traffic: Effect.sync(() => ({
      outcomes: { ...world.outcomes },
      apps: new Map([...world.traffic].map(([appId, counts]) => [appId, structuredClone(counts)]))
    })),
    address: { host: "127.0.0.1", port: 80 }
  })

const findRoute = (world: ProxyWorld, address: MemoryAddress): AppRoute | undefined =>
  [...world.routes.values()].find((route) =>
    "hostname" in address
      ? route.hostnames.includes(address.hostname.toLowerCase())
      : route.hostPort === address.hostPort
  )

const refused = (
  world: ProxyWorld,
  outcome: keyof ProxyOutcomes,
  status: 404 | 502 | 503,
  reason: string
): MemoryRequest => {
  world.outcomes[outcome]++
  return { answer: { kind: "proxy", status, reason }, finish: Effect.void }
}

const countsOf = (world: ProxyWorld, appId: AppId): Counts => {
  const counts = world.traffic.get(appId) ?? { open: 0, routed: 0, answers: { 1: 0, 2: 0, 3: 0, 4: 0, 5: 0 } }
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
