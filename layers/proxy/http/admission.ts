/** Whether a request is let in, whatever protocol it came over. Outside Effect: this is the data path. */
import { App } from "./app.ts"
import type { Routes } from "./routes.ts"

/** The answer that the proxy gives itself instead of the app. */
export interface Refused {
  readonly status: number
  readonly reason: string
  /** Whole seconds after which it makes sense to ask again. */
  readonly retryAfter?: number | undefined
}

/** Whom the requests of one connection may be for. */
export interface Addressee {
  readonly routes: Routes
  /** The app that a request with this hostname (lowercase) is for. */
  readonly find: (hostname: string) => App | undefined
}

/** The longest hostname there can be. */
const MAX_HOSTNAME = 253

/**
 * The app that a request is for, or what it is refused with, which is counted by then. `host` is lowercase and without
 * a port; so is `servername`, the name that TLS was begun with, if any.
 */
export const admit = (to: Addressee, host: string, servername: string | undefined): App | Refused => {
  const { routes } = to
  if (servername !== undefined && servername !== host) {
    routes.outcomes.wrongHost++
    return { status: 421, reason: "this connection was opened for another hostname" }
  }
  const app = to.find(host)
  if (app === undefined && !routes.complete) {
    routes.outcomes.refused++
    return { status: 503, reason: "this host is starting: try again in a moment", retryAfter: 1 }
  }
  if (app === undefined) {
    routes.outcomes.noSuchHost++
    return { status: 404, reason: `no app here is called ${host.slice(0, MAX_HOSTNAME)}` }
  }
  const refusal = routes.refusal(app)
  if (refusal === undefined) return app
  app.arrivals++
  app.refused++
  routes.outcomes.refused++
  return { status: 503, reason: refusal.reason, retryAfter: refusal.retryAfter }
}

export const isAdmitted = (result: App | Refused): result is App => result instanceof App
