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
  /** Lowercase. A hostname is held by at most one app. */
  readonly hostnames: ReadonlyArray<string>
  readonly target: RouteTarget
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
     * app's route of before. When the target changes, pooled connections to the old one are never used again.
     */
    readonly setRoute: (route: AppRoute) => Effect.Effect<void>
    /** From now on the app's hostnames are answered with 404. */
    readonly removeRoute: (appId: AppId) => Effect.Effect<void>
    /** Where the proxy listens, once it does; absent on a host that serves no hostnames. */
    readonly address: { readonly host: string; readonly port: number } | undefined
  }
>()("nibrunner/services/Proxy") {}
