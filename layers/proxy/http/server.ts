/**
 * The proxy as a whole: listeners, routes, connections. Outside Effect: this is the data path; `layer.ts` makes a
 * service of it.
 */
import { createServer, type Server } from "node:net"
import type { Server as TlsServer } from "node:tls"
import type { AppId } from "../../../src/document/schema.ts"
import type {
  AppRoute,
  AsleepTarget,
  ProxyTraffic,
  UnavailableTarget,
  UpTarget
} from "../../../src/services/Proxy.ts"
import type { RawContext } from "../raw/context.ts"
import type { RawLimits, RawTimeouts } from "../raw/limits.ts"
import type { Addressee } from "./admission.ts"
import type { App } from "./app.ts"
import { CallerConnection, type ListenerContext } from "./caller-connection.ts"
import { Crowd } from "./crowd.ts"
import { Http2Connection } from "./h2/connection.ts"
import { PEER_CHECK_MS, type Timeouts } from "./limits.ts"
import { Pool } from "./pool.ts"
import { type Concurrency, Routes } from "./routes.ts"
import { Sweep } from "./sweep.ts"
import type { Credentials } from "./tls/credentials.ts"
import { createTlsListener } from "./tls/listener.ts"
import type { OnDefect } from "./wire.ts"

export interface ServerOptions {
  readonly timeouts: Timeouts
  readonly onDefect: OnDefect
  /** Runs an app's wake and gives what came of it to `done`, never before it returns. */
  readonly runWake: (wake: AsleepTarget["wake"], done: (target: UpTarget | UnavailableTarget) => void) => void
  readonly concurrency?: Concurrency | undefined
  /** The most connections of callers. */
  readonly callers: number
  /** Told each time that there are so many. */
  readonly onFull: () => void
}

export class ProxyServer {
  readonly #timeouts: Timeouts
  readonly #onDefect: OnDefect
  readonly #sweep: Sweep
  readonly #routes: Routes
  readonly #crowd: Crowd
  /** What is open of raw ports. */
  readonly #raw: RawContext["open"] = new Set()

  constructor({ timeouts, onDefect, runWake, concurrency, callers, onFull }: ServerOptions) {
    this.#crowd = new Crowd(callers, onFull)
    this.#timeouts = timeouts
    this.#onDefect = onDefect
    this.#sweep = new Sweep(timeouts.sweep)
    const context = { sweep: this.#sweep, timeouts, onDefect }
    this.#routes = new Routes({
      openPool: (host, port, { links }) => new Pool(host, port, context, links),
      runWake: (app, wake) => runWake(wake.effect, (target) => this.#routes.woken(app, wake, target)),
      onDefect,
      timeouts,
      concurrency
    })
  }

  /** Whether a hostname without a route is nobody's. */
  set routesComplete(complete: boolean) {
    this.#routes.complete = complete
  }

  /** Requests to it are routed by their Host. */
  hostnameListener(): Server {
    return this.#listener((hostname) => this.#routes.find(hostname))
  }

  /** The same under TLS. */
  secureHostnameListener({ secureContext }: Credentials): TlsServer {
    const context = this.#context((hostname) => this.#routes.find(hostname))
    return createTlsListener({
      secureContext,
      handshakeTimeout: this.#timeouts.handshake,
      handshakes: this.#routes.handshakes,
      onConnection: (socket) => {
        if (this.#crowd.hasRoom()) this.#crowd.handshakeBegins(socket)
        else socket.destroy()
      },
      onSecure: (socket, servername) => {
        this.#crowd.handshakeEnds(socket)
        if (socket.alpnProtocol === "h2") new Http2Connection(socket, context, servername)
        else new CallerConnection(socket, context, { servername })
      }
    })
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

  endConnections(appId: AppId): void {
    this.#routes.endConnections(appId)
  }

  /** What raw ports need of the proxy. */
  rawContext(timeouts: RawTimeouts, limits: RawLimits): RawContext {
    return {
      routes: this.#routes,
      sweep: this.#sweep,
      onDefect: this.#onDefect,
      timeouts,
      open: this.#raw,
      limits,
      tcpSessions: 0,
      udpSessions: 0,
      udpPorts: new Set()
    }
  }

  traffic(): ProxyTraffic {
    return this.#routes.traffic()
  }

  /** Closes every connection at once. Listeners are closed by who opened them. */
  close(): void {
    this.#crowd.close()
    for (const open of [...this.#raw]) open.destroy()
    this.#routes.close()
    this.#sweep.stop()
  }

  #context(find: Addressee["find"]): ListenerContext {
    return {
      sweep: this.#sweep,
      timeouts: this.#timeouts,
      onDefect: this.#onDefect,
      routes: this.#routes,
      crowd: this.#crowd,
      find
    }
  }

  #listener(find: Addressee["find"]): Server {
    const context = this.#context(find)
    return createServer(
      {
        allowHalfOpen: true,
        pauseOnConnect: true,
        noDelay: true,
        keepAlive: true,
        keepAliveInitialDelay: PEER_CHECK_MS
      },
      (accepted) => {
        if (this.#crowd.hasRoom()) new CallerConnection(accepted, context)
        else accepted.destroy()
      }
    )
  }
}
