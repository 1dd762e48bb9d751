/** Both ends of the proxy as bare TCP connections, so that a test sees every byte. */
import { createServer, type Socket, connect as tcpConnect } from "node:net"
import { Context, Effect, Layer, type Scope } from "effect"
import type { Timeouts } from "../../../layers/proxy/http/limits.ts"
import { layerProxy, type ProxyOptions } from "../../../layers/proxy/layer.ts"
import { AppId } from "../../../src/document/schema.ts"
import { Proxy, type RouteTarget } from "../../../src/services/Proxy.ts"

/** One connection, with everything that came over it and was not taken yet. */
export class Talk {
  readonly socket: Socket
  /** The peer has closed its sending side. */
  ended = false
  closed = false
  errorCode = ""
  bytesSeen = 0
  /** When set, it sees what comes, which is not kept then. */
  absorb: ((bytes: Buffer) => void) | undefined
  #received: Buffer = Buffer.alloc(0)
  readonly #watchers = new Set<() => void>()

  constructor(socket: Socket) {
    this.socket = socket
    const changed = () => {
      for (const watcher of [...this.#watchers]) watcher()
    }
    socket.on("data", (bytes) => {
      this.bytesSeen += bytes.length
      if (this.absorb === undefined) this.#received = Buffer.concat([this.#received, bytes])
      else this.absorb(bytes)
      changed()
    })
    socket.on("end", () => {
      this.ended = true
      changed()
    })
    socket.on("error", (error: NodeJS.ErrnoException) => {
      this.errorCode = error.code ?? "unknown"
    })
    socket.on("close", () => {
      this.ended = true
      this.closed = true
      changed()
    })
    socket.on("connect", changed)
  }

  /** What has come and was not taken. */
  get text(): string {
    return this.#received.toString("latin1")
  }

  /** What has come; it is not given again. */
  take(length = this.#received.length): string {
    const taken = this.#received.toString("latin1", 0, length)
    this.#received = this.#received.subarray(length)
    return taken
  }

  write(text: string | Buffer): void {
    this.socket.write(text, "latin1")
  }

  /** Waits for the event after which the condition holds. */
  until(condition: (talk: Talk) => boolean, what = String(condition)): Effect.Effect<void> {
    return Effect.callback<void>((resume) => {
      const check = () => {
        if (!condition(this)) return
        this.#watchers.delete(check)
        resume(Effect.void)
      }
      this.#watchers.add(check)
      check()
      return Effect.sync(() => this.#watchers.delete(check))
    }).pipe(
      Effect.timeoutOrElse({
        duration: "40 seconds",
        orElse: () =>
          Effect.die(
            new Error(`waited in vain for ${what}; there is: ${JSON.stringify(this.text.slice(0, 2000))}`)
          )
      })
    )
  }

  /** Waits until the text has come, takes everything up to its end and gives it. */
  through(text: string): Effect.Effect<string> {
    return this.until((talk) => talk.text.includes(text), JSON.stringify(text)).pipe(
      Effect.map(() => this.take(this.text.indexOf(text) + text.length))
    )
  }

  /** Waits for a whole head and takes it. */
  readonly head: Effect.Effect<string> = Effect.suspend(() => this.through("\r\n\r\n"))

  /** Waits until the peer sends no more, and takes everything. */
  readonly rest: Effect.Effect<string> = Effect.suspend(() =>
    this.until((talk) => talk.ended, "the end").pipe(Effect.map(() => this.take()))
  )
}

const scoped = (socket: Socket) =>
  Effect.acquireRelease(
    Effect.sync(() => new Talk(socket)),
    (talk) => Effect.sync(() => talk.socket.destroy())
  )

/** A connection to a port of 127.0.0.1. */
export const dial = (port: number): Effect.Effect<Talk, never, Scope.Scope> =>
  Effect.suspend(() => scoped(tcpConnect({ host: "127.0.0.1", port, allowHalfOpen: true, noDelay: true })))

export interface Upstream {
  readonly port: number
  readonly connections: ReadonlyArray<Talk>
  /** Waits for the connection of this number, counted from 0. */
  readonly connection: (index: number) => Effect.Effect<Talk>
}

/** A server that does what the test does with its connections. `onConnection` sees each as it comes. */
export const listenRaw = (onConnection?: (talk: Talk, index: number) => void, onPort = 0) =>
  Effect.gen(function* () {
    const connections: Array<Talk> = []
    const watchers = new Set<() => void>()
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      const talk = new Talk(socket)
      connections.push(talk)
      onConnection?.(talk, connections.length - 1)
      for (const watcher of [...watchers]) watcher()
    })
    const port = yield* Effect.acquireRelease(
      Effect.callback<number>((resume) => {
        server.listen(onPort, "127.0.0.1", () => {
          const address = server.address()
          resume(Effect.succeed(typeof address === "object" && address !== null ? address.port : 0))
        })
      }),
      () =>
        Effect.sync(() => {
          server.close()
          for (const talk of connections) talk.socket.destroy()
        })
    )
    const connection = (index: number) =>
      Effect.callback<Talk>((resume) => {
        const check = () => {
          const talk = connections[index]
          if (talk === undefined) return
          watchers.delete(check)
          resume(Effect.succeed(talk))
        }
        watchers.add(check)
        check()
      }).pipe(
        Effect.timeoutOrElse({
          duration: "40 seconds",
          orElse: () => Effect.die(new Error(`connection ${index} never came`))
        })
      )
    return { port, connections, connection } satisfies Upstream
  })

export const appId = AppId.make("app-1")

/** A proxy on a free port. */
export const startProxy = (timeouts: Partial<Timeouts> = {}, options: ProxyOptions = {}) =>
  Effect.gen(function* () {
    const context = yield* Layer.build(
      layerProxy({ listen: { address: "127.0.0.1", port: 0 }, timeouts, ...options })
    )
    const proxy = Context.get(context, Proxy)
    return { proxy, port: proxy.address?.port ?? 0 }
  })

/** A proxy whose one app, `app.test`, is the given upstream. */
export const proxyTo = (upstreamPort: number, timeouts: Partial<Timeouts> = {}) =>
  Effect.gen(function* () {
    const started = yield* startProxy(timeouts)
    const target: RouteTarget = { kind: "up", host: "127.0.0.1", port: upstreamPort }
    yield* started.proxy.setRoute({ appId, hostnames: ["app.test"], target })
    return { ...started, target }
  })

/** The open requests of the one app. */
export const openRequests = (proxy: Proxy["Service"]) =>
  proxy.traffic.pipe(Effect.map((traffic) => traffic.apps.get(appId)?.open ?? 0))

/** Asks again until the condition holds: for counts, which have no event. */
export const eventually = <A>(reading: Effect.Effect<A>, holds: (value: A) => boolean): Effect.Effect<A> =>
  reading.pipe(
    Effect.tap((value) => (holds(value) ? Effect.void : Effect.sleep(10))),
    Effect.repeat({ until: holds }),
    Effect.timeoutOrElse({
      duration: "40 seconds",
      orElse: () => Effect.die(new Error("it never came to hold"))
    })
  )

/**
 * Writes all of the bytes piece by piece. Succeeds with how many were written when the far end takes no more for half a
 * second, or when all were; goes on writing in any case.
 */
export const writeUntilStuck = (talk: Talk, bytes: Buffer, piece = 1_000_003): Effect.Effect<number> =>
  Effect.callback<number>((resume) => {
    let written = 0
    let stuck: NodeJS.Timeout | undefined
    const pump = () => {
      clearTimeout(stuck)
      while (written < bytes.length) {
        const next = bytes.subarray(written, written + piece)
        written += next.length
        if (!talk.socket.write(next)) {
          stuck = setTimeout(() => resume(Effect.succeed(written)), 500)
          return
        }
      }
      resume(Effect.succeed(written))
    }
    talk.socket.on("drain", pump)
    pump()
  })

/** A port of 127.0.0.1 that is free at this moment, and whatever holds it until the scope closes. */
export const heldPort = Effect.acquireRelease(
  Effect.callback<{ port: number; release: Effect.Effect<void> }>((resume) => {
    const server = createServer()
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      const release = Effect.callback<void>((done) => {
        server.close(() => done(Effect.void))
      })
      resume(Effect.succeed({ port, release }))
    })
  }),
  ({ release }) => release
)

/** A port of 127.0.0.1 that is free at this moment. */
export const freePort = Effect.scoped(heldPort.pipe(Effect.map(({ port }) => port)))
