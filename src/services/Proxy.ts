/** The ways in: HTTP in front of the apps, by hostname, and their raw ports. */
import { Context, type Effect, Schema, type SubscriptionRef } from "effect"
import type { AppId } from "../document/schema.ts"
import type { Distribution } from "../metrics/instruments.ts"

/** The app runs: what is for it goes to the guest. */
export interface UpTarget {
  readonly kind: "up"
  /** Where the guest is reached, on the port numbers that it has inside. */
  readonly host: string
  /** The guest's HTTP port. */
  readonly port: number
  /** What carries UDP to the guest, where the network does not by itself. Without it datagrams go to `host`. */
  readonly datagrams?: DatagramPath
}

/**
 * The app takes nothing now. Requests are answered with 503, connections to raw ports are reset, datagrams dropped.
 * A response that is being given by then is left to finish.
 */
export interface UnavailableTarget {
  readonly kind: "unavailable"
  /** One sentence for the caller. */
  readonly reason: string
  /** Whole seconds after which the caller may try again: the `Retry-After` of the answer. */
  readonly retryAfter?: number
}

/**
 * The app sleeps. Whatever is for it is held, with what it brings, and `wake` is run: once, however many come. They
 * all go on with what it gives.
 */
export interface AsleepTarget {
  readonly kind: "asleep"
  /**
   * Run when something comes for the app and no run is under way; a run ends early only with the proxy. `up` takes the
   * place of this target, as if it had been set. `unavailable` is for those that were held by then; what comes after
   * asks again. A route that is set meanwhile goes before either: what is held goes on as that says, and when it is
   * asleep too, but with another effect, that is run.
   */
  readonly wake: Effect.Effect<UpTarget | UnavailableTarget>
}

/** What the proxy does with what comes for one app. */
export type RouteTarget = UpTarget | UnavailableTarget | AsleepTarget

/** One client's datagrams to one port of a guest. Called outside Effect; none of it throws. */
export interface DatagramSession {
  readonly send: (bytes: Uint8Array) => void
  /** Nothing is sent, nor given to `onReply`, afterwards. */
  readonly close: () => void
}

/** Carries datagrams into a guest. */
export interface DatagramPath {
  /** `onReply` gets what the guest answers to this client. Cheap: it is called for every client that is new. */
  readonly open: (guestPort: number, onReply: (bytes: Uint8Array) => void) => DatagramSession
}

/** A port beside the HTTP one: TCP and UDP, carried unread. */
export interface RawPort {
  readonly name: string
  /** On the address that the configuration names in `proxy.raw`. */
  readonly hostPort: number
  readonly guestPort: number
}

export interface AppRoute {
  readonly appId: AppId
  /** Lowercase. A hostname is held by at most one app: the one that was routed last. */
  readonly hostnames: ReadonlyArray<string>
  readonly target: RouteTarget
  /**
   * The app's own port on 127.0.0.1: its requests go to this app whatever their Host says. Without it the app
   * has none.
   */
  readonly hostPort?: number
  /** None on a host that serves no raw ports. */
  readonly rawPorts?: ReadonlyArray<RawPort>
}

/** What became of the sessions of one protocol on an app's raw ports. All but `open` only grow. */
export interface RawTraffic {
  /** Connections, or clients that have sent or got a datagram in the last minute. */
  readonly open: number
  /** The guest was reached. */
  readonly relayed: number
  /** The app was not there to be reached. */
  readonly down: number
  /** The app slept and could not be woken. */
  readonly wakeRefused: number
  /** The guest refused the connection. */
  readonly notTaken: number
  /** From clients to the guest. */
  readonly bytesIn: number
  /** From the guest to clients. */
  readonly bytesOut: number
  /** Datagrams, and connections, that found no room. */
  readonly dropped: number
}

/** What the proxy has seen of one app since it was first routed. */
export interface AppTraffic {
  /**
   * Requests between their routing and the end of both bodies, upgraded connections until they close, connections to
   * raw ports, and datagrams that are held. Sessions of datagrams are not among them: they show in `arrivals`.
   */
  readonly open: number
  /** Those among `open` that wait for the app to be woken. */
  readonly held: number
  /**
   * Everything that came for the app so far: requests, whatever became of them, connections to raw ports, and
   * datagrams. Only grows. A reading that equals the last one, with none open, was quiet.
   */
  readonly arrivals: number
  /** Requests that were to be forwarded so far, answered or not; only grows. */
  readonly routed: number
  /** Answers of the app by the first digit of their status; 101 is under 1, other interim answers are not counted. */
  readonly answers: { readonly [statusClass in 1 | 2 | 3 | 4 | 5]: number }
  /** How long the app's answers took to begin, from the routing of the request, in seconds; the sum over `answers`. */
  readonly answerSeconds: number
  /** 503 that the proxy gave for it: it takes none, could not be woken, or has as many as it may. */
  readonly refused: number
  /** 502 that the proxy gave for it. */
  readonly unreachable: number
  readonly tcp: RawTraffic
  readonly udp: RawTraffic
}

/** Upper ends of the buckets in which the proxy counts how long answers took to begin, in seconds. */
export const REQUEST_BOUNDS: ReadonlyArray<number> = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10
]

/** Requests by what became of them; only grow. */
export interface ProxyOutcomes {
  /** Answered by the app, whatever the status. */
  readonly served: number
  /** 404: no app has this hostname. */
  readonly noSuchHost: number
  /** 421: the hostname is not the one that TLS was spoken with. */
  readonly wrongHost: number
  /** 400, 408, 431, 501, 505: not a request that can be forwarded. 503: the app takes none, or no more. */
  readonly refused: number
  /** 502: the app could not be connected to, or closed without an answer that can be understood. */
  readonly unreachable: number
}

/** TLS handshakes by what became of them; only grow. */
export interface HandshakeOutcomes {
  readonly completed: number
  /** Also those whose client showed no certificate that is accepted. */
  readonly failed: number
  readonly timedOut: number
}

export interface ProxyTraffic {
  readonly outcomes: ProxyOutcomes
  /** `AppTraffic.answerSeconds` of each answer, over all apps, by `REQUEST_BOUNDS`. */
  readonly requestSeconds: Distribution
  readonly handshakes: HandshakeOutcomes
  /** What was held for an app while a wake for something else was under way already, and joined that; only grows. */
  readonly joinedWakes: number
  /** Every app that is routed, and those no longer routed that still have something open. */
  readonly apps: ReadonlyMap<AppId, AppTraffic>
}

export class ProxyError extends Schema.TaggedError<ProxyError>()("ProxyError", { reason: Schema.String }) {
  override get message() {
    return `the proxy could not be started: ${this.reason}`
  }
}

export class Proxy extends Context.Service<
  Proxy,
  {
    /**
     * Puts the app's route in force before it succeeds: a request that arrives afterwards meets it. Replaces the
     * app's route of before. When the target changes, pooled connections to the old one are never used again;
     * requests that are under way on them are left to finish.
     *
     * A port that cannot be bound does not fail the route, because the rest of it works: `refusedPorts` and the daemon's
     * log name the port, and it is tried again until it is bound or the route goes.
     */
    readonly setRoute: (route: AppRoute) => Effect.Effect<void>
    /** From now on the app's hostnames are answered with 404 and its own ports are closed. No error when there is no such app. */
    readonly removeRoute: (appId: AppId) => Effect.Effect<void>
    /**
     * Closes whatever is open to the app's guest: its microVM has ended, asleep or otherwise. No packet tells of that where
     * the guest's address is on a tap, so without this such a connection stays open for a minute and more. Requests
     * that had no answer get 502, answers break off, tunnels and connections to raw ports are reset. What is held for a
     * wake is not touched. To be run after `setRoute` has put another target in force. No error when there is no such app.
     */
    readonly endConnections: (appId: AppId) => Effect.Effect<void>
    /** Every app that this host has is routed: from now on a hostname without a route is nobody's (404). */
    readonly routesComplete: Effect.Effect<void>
    /** The counts at this moment: exact, and cheap enough to be read every second. */
    readonly traffic: Effect.Effect<ProxyTraffic>
    /**
     * For each app that has some, a sentence for each of its ports that cannot be listened on now, as a clause for its
     * message. Nothing of a port that was bound since, or whose route has gone.
     */
    readonly refusedPorts: SubscriptionRef.SubscriptionRef<ReadonlyMap<AppId, ReadonlyArray<string>>>
    /** Where the proxy listens, once it does; absent on a host that serves no hostnames. */
    readonly address: { readonly host: string; readonly port: number } | undefined
  }
>()("nibrunner/services/Proxy") {}
