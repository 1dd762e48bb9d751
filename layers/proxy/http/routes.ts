/** Which app a hostname belongs to, what it takes, and what is counted. Outside Effect: this is the data path. */
import type { AppId } from "../../../src/document/schema.ts"
import { Histogram } from "../../../src/metrics/instruments.ts"
import {
  type AppRoute,
  type HandshakeOutcomes,
  type ProxyOutcomes,
  type ProxyTraffic,
  REQUEST_BOUNDS,
  type RouteTarget,
  type UnavailableTarget,
  type UpTarget
} from "../../../src/services/Proxy.ts"
import { App, type Held } from "./app.ts"
import type { Timeouts } from "./limits.ts"
import type { Pool } from "./pool.ts"
import { type RunWake, Wake } from "./wake.ts"
import type { OnDefect } from "./wire.ts"

export type Outcome = keyof ProxyOutcomes

/** The most requests that may be open at a time. */
export interface Concurrency {
  readonly host: number
  readonly app: number
}

export interface RoutesOptions {
  readonly openPool: (host: string, port: number, app: App) => Pool
  readonly runWake: RunWake
  readonly onDefect: OnDefect
  readonly timeouts: Pick<Timeouts, "settle" | "settleRetry">
  readonly concurrency?: Concurrency | undefined
}

const busy = (who: string): UnavailableTarget => ({
  kind: "unavailable",
  reason: `${who} has as many requests under way as it may have: try again in a moment`,
  retryAfter: 1
})
const hostBusy = busy("this host")
const appBusy = busy("the app")

const REMOVED: UnavailableTarget = { kind: "unavailable", reason: "the app was removed" }

export class Routes {
  readonly outcomes: Record<Outcome, number> = {
    served: 0,
    noSuchHost: 0,
    wrongHost: 0,
    refused: 0,
    unreachable: 0
  }
  readonly handshakes: { -readonly [outcome in keyof HandshakeOutcomes]: number } = {
    completed: 0,
    failed: 0,
    timedOut: 0
  }
  joinedWakes = 0
  /** False as long as routes of apps that are there already may still come: until then no hostname is nobody's. */
  complete = true
  readonly #requestSeconds = new Histogram(REQUEST_BOUNDS)
  readonly #options: RoutesOptions
  readonly #limits: Concurrency
  readonly #byHostname = new Map<string, App>()
  readonly #byId = new Map<AppId, App>()
  /** Requests that are open, of all apps. */
  #requests = 0

  constructor(options: RoutesOptions) {
    this.#options = options
    this.#limits = options.concurrency ?? { host: Number.POSITIVE_INFINITY, app: Number.POSITIVE_INFINITY }
  }

  /** `hostname` in lower case. */
  find(hostname: string): App | undefined {
    return this.#byHostname.get(hostname)
  }

  set(route: AppRoute): App {
    const app = this.#byId.get(route.appId) ?? new App(route.appId)
    this.#byId.set(route.appId, app)
    app.removed = false
    this.#setHostnames(app, route.hostnames)
    this.#setTarget(app, route.target)
    return app
  }

  remove(appId: AppId): void {
    const app = this.#byId.get(appId)
    if (app === undefined) return
    app.removed = true
    this.#setHostnames(app, [])
    this.#setTarget(app, REMOVED)
    this.forgetIfQuiet(app)
  }

  /** Closes whatever is open to the app's guest. */
  endConnections(appId: AppId): void {
    for (const link of [...(this.#byId.get(appId)?.links ?? [])]) {
      try {
        link.lost()
      } catch (error) {
        this.#options.onDefect(error)
      }
    }
  }

  /** Drops what is known of a removed app once nothing of it is open. */
  forgetIfQuiet(app: App): void {
    if (app.removed && app.open === 0) this.#byId.delete(app.appId)
  }

  /** Why the app takes no request now; undefined when it does. */
  refusal(app: App): UnavailableTarget | undefined {
    if (app.target.kind === "unavailable") return app.target
    if (this.#requests >= this.#limits.host) return hostBusy
    return app.requests >= this.#limits.app ? appBusy : undefined
  }

  /** A request of the app is open from now on. */
  begin(app: App): void {
    this.#requests++
    app.requests++
    app.routed++
    app.arrivals++
  }

  /** The app's answer begins, so long after the request was routed. */
  answered(app: App, status: number, seconds: number): void {
    this.outcomes.served++
    const statusClass = Math.min(Math.floor(status / 100), 5)
    app.answers[statusClass] = (app.answers[statusClass] ?? 0) + 1
    app.answerSeconds += seconds
    this.#requestSeconds.observe("", seconds)
  }

  /** The end of what `begin` began. */
  end(app: App): void {
    this.#requests--
    app.requests--
    this.forgetIfQuiet(app)
  }

  /** Keeps it until the app, which is asleep, is awake or will not be. */
  hold(app: App, held: Held): void {
    const { wake } = app
    if (wake === undefined) throw new Error(`app ${app.appId} is not asleep`)
    wake.held.add(held)
    if (wake.running) this.joinedWakes++
    this.#ask(app, wake)
  }

  /** Runs `attempt` a moment later, unless the timer is cleared. */
  tryLater(attempt: () => void): NodeJS.Timeout {
    return setTimeout(() => {
      try {
        attempt()
      } catch (error) {
        this.#options.onDefect(error)
      }
    }, this.#options.timeouts.settleRetry)
  }

  /** It does not wait any more; the wake goes on. */
  leave(app: App, held: Held): void {
    app.wake?.held.delete(held)
  }

  /** The run of a wake has ended. */
  woken(app: App, wake: Wake, target: UpTarget | UnavailableTarget): void {
    wake.running = false
    if (app.wake !== wake) return
    if (target.kind === "up") this.#setTarget(app, target)
    else wake.releaseUnavailable(target)
  }

  traffic(): ProxyTraffic {
    const apps = new Map([...this.#byId].map(([appId, app]) => [appId, app.traffic()]))
    return {
      outcomes: { ...this.outcomes },
      requestSeconds: this.#requestSeconds.distributionOf(""),
      handshakes: { ...this.handshakes },
      joinedWakes: this.joinedWakes,
      apps
    }
  }

  /** Closes every pool. */
  close(): void {
    for (const app of this.#byId.values()) app.pool?.retire()
  }

  #ask(app: App, wake: Wake): void {
    if (wake.running) return
    wake.running = true
    this.#options.runWake(app, wake)
  }

  #setHostnames(app: App, hostnames: ReadonlyArray<string>): void {
    for (const hostname of app.hostnames) {
      if (this.#byHostname.get(hostname) === app) this.#byHostname.delete(hostname)
    }
    app.hostnames = hostnames
    for (const hostname of hostnames) this.#byHostname.set(hostname, app)
  }

  #setTarget(app: App, target: RouteTarget): void {
    const before = app.target
    app.target = target
    if (
      before.kind === "up" &&
      target.kind === "up" &&
      before.host === target.host &&
      before.port === target.port
    ) {
      return
    }
    const isWoken = before.kind === "asleep" && target.kind === "up"
    app.settlesAt = isWoken ? performance.now() + this.#options.timeouts.settle : 0
    app.pool?.retire()
    app.pool = target.kind === "up" ? this.#options.openPool(target.host, target.port, app) : undefined
    this.#setWake(app, target)
  }

  #setWake(app: App, target: RouteTarget): void {
    const before = app.wake
    if (target.kind === "asleep") {
      if (before?.effect === target.wake) return
      const wake = new Wake(target.wake, before?.held ?? new Set(), this.#options.onDefect)
      app.wake = wake
      if (wake.held.size > 0) this.#ask(app, wake)
      return
    }
    app.wake = undefined
    if (target.kind === "up") before?.releaseUp()
    else before?.releaseUnavailable(target)
  }
}
