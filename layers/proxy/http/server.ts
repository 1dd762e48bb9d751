/**
 * The proxy as a whole: listeners, routes, connections. Outside Effect: this is the data path; `layer.ts` makes a
 * service of it.
 */
import { createServer, type Server } from "node:net"
import type { AppId } from "../../../src/document/schema.ts"
import type {
  AppRoute,
  AsleepTarget,
  ProxyTraffic,
  UnavailableTarget,
  UpTarget
} from "../../../src/services/Proxy.ts"
import type { Addressee } from "./admission.ts"
import type { App } from "./app.ts"
import { CallerConnection, type ListenerContext } from "./caller-connection.ts"
import { PEER_CHECK_MS, type Timeouts } from "./limits.ts"
import { Pool } from "./pool.ts"
import { type Concurrency, Routes } from "./routes.ts"
import { Sweep } from "./sweep.ts"
import type { OnDefect } from "./wire.ts"

export interface ServerOptions {
  readonly timeouts: Timeouts
  readonly onDefect: OnDefect
  /** Runs an app's wake and gives what came of it to `done`, never before it returns. */
  readonly runWake: (wake: AsleepTarget["wake"], done: (target: UpTarget | UnavailableTarget) => void) => void
  readonly concurrency?: Concurrency | undefined
}

export class ProxyServer {
  readonly #timeouts: Timeouts
  readonly #onDefect: OnDefect
  readonly #sweep: Sweep
  readonly #routes: Routes
  readonly #connections = new Set<CallerConnection>()

  constructor({ timeouts, onDefect, runWake, concurrency }: ServerOptions) {
    this.#timeouts = timeouts
    this.#onDefect = onDefect
    this.#sweep = new Sweep(timeouts.sweep)
    const context = { sweep: this.#sweep, timeouts, onDefect }
    this.#routes = new Routes({
      openPool: (host, port) => new Pool(host, port, context),
      runWake: (app, wake) => runWake(wake.effect, (target) => this.#routes.woken(app, wake, target)),
      onDefect,
      concurrency
    })
  }

  /** Requests to it are routed by their Host. */
  hostnameListener(): Server {
    return this.#listener((hostname) => this.#routes.find(hostname))
  }

  /** Requests to it are for this app. */
  appListener(app: App): Server {
    return this.#listener(() => app)
  }

  setRoute(route: AppRoute): App {
    return this.#routes.set(route)
  }

  removeRoute(appId: AppId): void {
    this.#routes.remove(appId)
  }

  traffic(): ProxyTraffic {
    return this.#routes.traffic()
  }

  /** Closes every connection at once. Listeners are closed by who opened them. */
  close(): void {
    for (const connection of [...this.#connections]) connection.destroy()
    this.#routes.close()
    this.#sweep.stop()
  }

  #listener(find: Addressee["find"]): Server {
    const context: ListenerContext = {
      sweep: this.#sweep,
      timeouts: this.#timeouts,
      onDefect: this.#onDefect,
      routes: this.#routes,
      connections: this.#connections,
      find
    }
    return createServer(
      {
        allowHalfOpen: true,
        pauseOnConnect: true,
        noDelay: true,
        keepAlive: true,
        keepAliveInitialDelay: PEER_CHECK_MS
      },
      (accepted) => new CallerConnection(accepted, context)
    )
  }
}
