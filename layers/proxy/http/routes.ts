/** Which app a hostname belongs to, and what is counted of each. Outside Effect: this is the data path. */
import type { AppId } from "../../../src/document/schema.ts"
import type { AppRoute, ProxyOutcomes, ProxyTraffic, RouteTarget } from "../../../src/services/Proxy.ts"
import type { Pool } from "./pool.ts"

/** One app as the proxy knows it. It stays the same object from its first route until it is removed and has no open request. */
export class App {
  readonly appId: AppId
  hostnames: ReadonlyArray<string> = []
  target: RouteTarget = { kind: "unavailable", reason: "the app has no target yet" }
  /** Connections to the target; absent unless it is up. */
  pool: Pool | undefined
  open = 0
  routed = 0
  removed = false
  /** Answers by the first digit of their status. */
  readonly answers = [0, 0, 0, 0, 0, 0]

  constructor(appId: AppId) {
    this.appId = appId
  }
}

export type Outcome = keyof ProxyOutcomes

export class Routes {
  readonly outcomes: Record<Outcome, number> = {
    served: 0,
    noSuchHost: 0,
    wrongHost: 0,
    refused: 0,
    unreachable: 0
  }
  readonly #openPool: (host: string, port: number) => Pool
  readonly #byHostname = new Map<string, App>()
  readonly #byId = new Map<AppId, App>()

  constructor(openPool: (host: string, port: number) => Pool) {
    this.#openPool = openPool
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
    this.#setTarget(app, { kind: "unavailable", reason: "the app was removed" })
    this.forgetIfQuiet(app)
  }

  /** Drops what is known of a removed app once nothing of it is open. */
  forgetIfQuiet(app: App): void {
    if (app.removed && app.open === 0) this.#byId.delete(app.appId)
  }

  traffic(): ProxyTraffic {
    const apps = new Map<
      AppId,
      ProxyTraffic["apps"] extends ReadonlyMap<AppId, infer Traffic> ? Traffic : never
    >()
    for (const [appId, { open, routed, answers }] of this.#byId) {
      const [, one = 0, two = 0, three = 0, four = 0, five = 0] = answers
      apps.set(appId, { open, routed, answers: { 1: one, 2: two, 3: three, 4: four, 5: five } })
    }
    return { outcomes: { ...this.outcomes }, apps }
  }

  /** Closes every pool. */
  close(): void {
    for (const app of this.#byId.values()) app.pool?.retire()
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
    app.pool?.retire()
    app.pool = target.kind === "up" ? this.#openPool(target.host, target.port) : undefined
  }
}
