/** HTTP in front of the apps, by hostname. */
import { Context, type Effect, Schema } from "effect"
import type { AppId } from "../document/schema.ts"

/** What the proxy does with requests for one app. */
export type RouteTarget =
  /** Forwarded to the guest. */
  | { readonly kind: "up"; readonly host: string; readonly port: number }
  /** Answered with 503 by the proxy; `reason` is one sentence for the caller. */
  | { readonly kind: "unavailable"; readonly reason: string }

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
}

/** What the proxy has seen of one app since it was first routed. */
export interface AppTraffic {
  /** Requests between their routing and the end of both bodies, and upgraded connections until they close. */
  readonly open: number
  /** Requests that were to be forwarded so far, answered or not; only grows. A reading that equals the last one, with none open, was quiet. */
  readonly routed: number
  /** Answers by the first digit of their status; 101 is under 1, other interim answers are not counted. */
  readonly answers: { readonly [statusClass in 1 | 2 | 3 | 4 | 5]: number }
}

/** Requests by what became of them; only grow. */
export interface ProxyOutcomes {
  /** Answered by the app, whatever the status. */
  readonly served: number
  /** 404: no app has this hostname. */
  readonly noSuchHost: number
  /** 421: the hostname is not the one that TLS was spoken with. */
  readonly wrongHost: number
  /** 400, 408, 431, 501, 505: not a request that can be forwarded. 503: the app takes none. */
  readonly refused: number
  /** 502: the app could not be connected to, or closed without an answer that can be understood. */
  readonly unreachable: number
}

export interface ProxyTraffic {
  readonly outcomes: ProxyOutcomes
  /** Every app that is routed, and those no longer routed that still have open requests. */
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
     * A `hostPort` that cannot be bound does not fail the route, because the hostnames work without it: the
     * daemon's log names the port, and it is tried again until it is bound or the route goes.
     */
    readonly setRoute: (route: AppRoute) => Effect.Effect<void>
    /** From now on the app's hostnames are answered with 404 and its own port is closed. No error when there is no such app. */
    readonly removeRoute: (appId: AppId) => Effect.Effect<void>
    /** The counts at this moment: exact, and cheap enough to be read every second. */
    readonly traffic: Effect.Effect<ProxyTraffic>
    /** Where the proxy listens, once it does; absent on a host that serves no hostnames. */
    readonly address: { readonly host: string; readonly port: number } | undefined
  }
>()("nibrunner/services/Proxy") {}
