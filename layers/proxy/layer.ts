/**
 * `Proxy` over `node:net`, on one thread. What requests pass through lies outside Effect, because it costs less than a
 * fiber would: the files in `http` and `raw` say so. Here is what the rest of the program sees of it.
 */
import { Effect, FiberSet, Layer, Schedule, Semaphore, SubscriptionRef } from "effect"
import { Proxy, ProxyError, type UnavailableTarget } from "../../src/services/Proxy.ts"
import { fileLimit } from "./file-limit.ts"
import { defaultTimeouts, MAX_CALLERS, MAX_SECURE_CALLERS, type Timeouts } from "./http/limits.ts"
import { close, listen } from "./http/listen.ts"
import { OwnPorts } from "./http/own-ports.ts"
import type { Concurrency } from "./http/routes.ts"
import { ProxyServer, type ServerOptions } from "./http/server.ts"
import { readCredentials, type TlsFiles } from "./http/tls/credentials.ts"
import { renewing, warnIfExpired } from "./http/tls/renewal.ts"
import {
  defaultRawTimeouts,
  MAX_TCP_SESSIONS_OF_HOST,
  MAX_UDP_SESSIONS_OF_HOST,
  type RawLimits,
  type RawTimeouts
} from "./raw/limits.ts"
import { RawPorts } from "./raw/ports.ts"
import { RefusedPorts, type RefusedSentences } from "./refused-ports.ts"

export interface ProxyOptions {
  /** Where hostnames are served; port 0 takes a free one. Absent on a host that serves none: apps then have their own ports only. */
  readonly listen?: { readonly address: string; readonly port: number }
  /** Hostnames are served under TLS. Without it they are in plain HTTP. */
  readonly tls?: TlsFiles | undefined
  /** Without it as many requests may be open as come. */
  readonly concurrency?: Concurrency | undefined
  /** Where raw ports listen. Without it there are none, whatever a route says. */
  readonly raw?: { readonly address: string } | undefined
  /** The most connections of callers. Without it what `MAX_CALLERS` and `MAX_SECURE_CALLERS` say. */
  readonly callers?: number | undefined
  /** Without it what `MAX_TCP_SESSIONS_OF_HOST` says, and for one app a quarter of that; and `MAX_UDP_SESSIONS_OF_HOST`. */
  readonly rawLimits?: Partial<RawLimits> | undefined
  /** Until `routesComplete` is run a hostname without a route is answered 503 instead of 404. */
  readonly awaitRoutes?: boolean
  readonly timeouts?: Partial<Timeouts>
  readonly rawTimeouts?: Partial<RawTimeouts>
}

/** The proxy listens while the layer's scope is open; closing it closes every connection at once. */
export const layerProxy = (options: ProxyOptions): Layer.Layer<Proxy, ProxyError> =>
  Layer.effect(Proxy, make(options))

/** Strangers may be able to cause an error as often as they like: each kind is said once in this time. */
const QUIET_MS = 10_000
const RETRY = Schedule.spaced("5 seconds")

const NOT_WOKEN: UnavailableTarget = { kind: "unavailable", reason: "the app could not be woken" }

/** Runs wakes in fibers that end with the scope. */
const makeRunWake = Effect.gen(function* () {
  const wakes = yield* FiberSet.make<void>()
  const fork = yield* FiberSet.runtime(wakes)()
  const runWake: ServerOptions["runWake"] = (wake, done) => {
    const told = wake.pipe(
      Effect.catchCause((cause) =>
        Effect.as(Effect.logError("waking an app ended in a defect", cause), NOT_WOKEN)
      ),
      Effect.map(done)
    )
    queueMicrotask(() => fork(told))
  }
  return runWake
})

const make = Effect.fnUntraced(function* (options: ProxyOptions) {
  const services = yield* Effect.context<never>()
  const fork = Effect.runForkWith(services)
  const say = (what: string) => {
    let quietUntil = 0
    return (...details: ReadonlyArray<unknown>) => {
      const now = performance.now()
      if (now < quietUntil) return
      quietUntil = now + QUIET_MS
      fork(Effect.logError(what, ...details))
    }
  }
  const timeouts = { ...defaultTimeouts, ...options.timeouts }
  const runWake = yield* makeRunWake
  const most = options.tls === undefined ? MAX_CALLERS : MAX_SECURE_CALLERS
  const callers = options.callers ?? Math.min(most, Math.floor(fileLimit() / 4))
  const server = yield* Effect.acquireRelease(
    Effect.sync(
      () =>
        new ProxyServer({
          timeouts,
          onDefect: say("a defect of the proxy ended one connection"),
          runWake,
          concurrency: options.concurrency,
          callers,
          onFull: say(
            `the proxy has ${callers} connections of callers and takes no more: those that wait the longest for a request are closed (see LimitNOFILE of the daemon's unit)`
          )
        })
    ),
    (server) => Effect.sync(() => server.close())
  )
  if (options.awaitRoutes === true) server.routesComplete = false
  const onListenerError = say("a listener of the proxy met an error")
  const address =
    options.listen === undefined
      ? undefined
      : yield* openHostnames(server, options.listen, options.tls, onListenerError)
  const refused = new RefusedPorts(yield* SubscriptionRef.make<RefusedSentences>(new Map()))
  const ownPorts = yield* Effect.acquireRelease(
    Effect.sync(() => new OwnPorts((app) => server.appListener(app), onListenerError, refused)),
    (ports) => ports.closeAll
  )
  const rawPorts = yield* openRawPorts(server, options, onListenerError, refused)
  const turn = yield* Semaphore.make(1)
  const oneAtATime = (work: Effect.Effect<void>) =>
    turn.withPermits(1)(Effect.ensuring(work, refused.publish))
  yield* oneAtATime(Effect.andThen(ownPorts.retry, rawPorts?.retry ?? Effect.void)).pipe(
    Effect.repeat(RETRY),
    Effect.forkScoped
  )

  return Proxy.of({
    setRoute: (route) =>
      oneAtATime(
        Effect.suspend(() => {
          const app = server.setRoute(route)
          return Effect.andThen(
            ownPorts.set(app, route.hostPort),
            rawPorts?.set(app, route.rawPorts ?? []) ?? Effect.void
          )
        })
      ),
    removeRoute: (appId) =>
      oneAtATime(
        Effect.suspend(() => {
          server.removeRoute(appId)
          return Effect.andThen(ownPorts.remove(appId), rawPorts?.remove(appId) ?? Effect.void)
        })
      ),
    endConnections: (appId) => Effect.sync(() => server.endConnections(appId)),
    routesComplete: Effect.sync(() => {
      server.routesComplete = true
    }),
    traffic: Effect.sync(() => server.traffic()),
    refusedPorts: refused.sentences,
    address
  })
})

const usualRawLimits = (): RawLimits => {
  const share = Math.floor(fileLimit() / 8)
  const tcpSessionsOfHost = Math.min(MAX_TCP_SESSIONS_OF_HOST, share)
  return {
    tcpSessionsOfHost,
    tcpSessionsOfApp: Math.ceil(tcpSessionsOfHost / 4),
    udpSessionsOfHost: Math.min(MAX_UDP_SESSIONS_OF_HOST, share)
  }
}

const openRawPorts = (
  server: ProxyServer,
  { raw, rawTimeouts, rawLimits }: ProxyOptions,
  onError: (error: Error) => void,
  refused: RefusedPorts
) =>
  raw === undefined
    ? Effect.undefined
    : Effect.acquireRelease(
        Effect.sync(() => {
          const context = server.rawContext(
            { ...defaultRawTimeouts, ...rawTimeouts },
            { ...usualRawLimits(), ...rawLimits }
          )
          return new RawPorts(raw.address, context, onError, refused)
        }),
        (ports) => ports.closeAll
      )

const openHostnames = (
  server: ProxyServer,
  { address, port }: { readonly address: string; readonly port: number },
  tls: TlsFiles | undefined,
  onError: (error: Error) => void
) =>
  Effect.gen(function* () {
    const listener = tls === undefined ? server.hostnameListener() : yield* openSecureHostnames(server, tls)
    const bound = yield* listen(listener, address, port, onError).pipe(
      Effect.mapError((reason) => new ProxyError({ reason })),
      Effect.tap(() => Effect.addFinalizer(() => close(listener))),
      Effect.uninterruptible
    )
    return { host: address, port: bound }
  })

const openSecureHostnames = (server: ProxyServer, files: TlsFiles) =>
  Effect.gen(function* () {
    const credentials = yield* readCredentials(files).pipe(
      Effect.mapError(({ message }) => new ProxyError({ reason: message }))
    )
    yield* warnIfExpired(credentials)
    const listener = server.secureHostnameListener(credentials)
    yield* renewing(files, credentials, ({ secureContext }) => listener.setSecureContext(secureContext)).pipe(
      Effect.forkScoped
    )
    return listener
  })
