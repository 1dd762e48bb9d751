/**
 * The proxy as a whole: listeners, routes, connections. Outside Effect: this is the data path; `layer.ts` makes a
 * service of it.
 */
import { createServer, type Server, type Socket } from "node:net"
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
import type { RawTimeouts } from "../raw/limits.ts"
import type { Addressee } from "./admission.ts"
import type { App } from "./app.ts"
import { CallerConnection, type ListenerContext } from "./caller-connection.ts"
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
}

export class ProxyServer {
  readonly #timeouts: Timeouts
  readonly #onDefect: OnDefect
  readonly #sweep: Sweep
  readonly #routes: Routes
  readonly #connections: ListenerContext["connections"] = new Set()
  /** Under TLS: every connection, whether its handshake is over or not. */
  readonly #sockets = new Set<Socket>()

  constructor({ timeouts, onDefect, runWake, concurrency }: ServerOptions) {
    this.#timeouts = timeouts
    this.#onDefect = onDefect
    this.#sweep = new Sweep(timeouts.sweep)
    const context = { sweep: this.#sweep, timeouts, onDefect }
    this.#routes = new Routes({
      openPool: (host, port, { links }) => new Pool(host, port, context, links),
      runWake: (app, wake) => runWake(wake.effect, (target) => this.#routes.woken(app, wake, target)),
      onDefect,
      concurrency
    })
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
        this.#sockets.add(socket)
        socket.once("close", () => this.#sockets.delete(socket))
      },
      onSecure: (socket, servername) =>
        socket.alpnProtocol === "h2"
          ? new Http2Connection(socket, context, servername)
          : new CallerConnection(socket, context, { servername })
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
  rawContext(timeouts: RawTimeouts): RawContext {
    return {
      routes: this.#routes,
      sweep: this.#sweep,
      onDefect: this.#onDefect,
      timeouts,
      open: this.#connections,
      udpSessions: 0
    }
  }

  traffic(): ProxyTraffic {
    return this.#routes.traffic()
  }

  /** Closes every connection at once. Listeners are closed by who opened them. */
  close(): void {
    for (const connection of [...this.#connections]) connection.destroy()
    for (const socket of [...this.#sockets]) socket.destroy()
    this.#routes.close()
    this.#sweep.stop()
  }

  #context(find: Addressee["find"]): ListenerContext {
    return {
      sweep: this.#sweep,
      timeouts: this.#timeouts,
      onDefect: this.#onDefect,
      routes: this.#routes,
      connections: this.#connections,
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
      (accepted) => new CallerConnection(accepted, context)
    )
  }
}
