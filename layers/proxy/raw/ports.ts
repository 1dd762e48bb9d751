/** The raw ports of all apps: opened, kept open and closed. */
import { createSocket, type Socket } from "node:dgram"
import { createServer, isIPv6, type Server } from "node:net"
import { Effect } from "effect"
import type { AppId } from "../../../src/document/schema.ts"
import type { RawPort } from "../../../src/services/Proxy.ts"
import type { App } from "../http/app.ts"
import { PEER_CHECK_MS } from "../http/limits.ts"
import { cannotListen, close, listen } from "../http/listen.ts"
import type { RefusedPorts } from "../refused-ports.ts"
import type { RawContext } from "./context.ts"
import { TcpSession } from "./tcp.ts"
import { UdpPort } from "./udp.ts"

/** One port, for both protocols; either is absent while it cannot be bound. */
interface Opened {
  readonly app: App
  readonly port: RawPort
  tcp: Server | undefined
  udp: UdpPort | undefined
}

/** Not safe for concurrent use: the layer lets one call in at a time. */
export class RawPorts {
  readonly #address: string
  readonly #context: RawContext
  readonly #onError: (error: Error) => void
  readonly #refused: RefusedPorts
  readonly #byApp = new Map<AppId, ReadonlyArray<Opened>>()

  /** `address`: where every port listens. */
  constructor(address: string, context: RawContext, onError: (error: Error) => void, refused: RefusedPorts) {
    this.#address = address
    this.#context = context
    this.#onError = onError
    this.#refused = refused
  }

  /** Makes these the app's raw ports. What cannot be bound is said in the log and kept for `retry`. */
  set(app: App, ports: ReadonlyArray<RawPort>): Effect.Effect<void> {
    return Effect.suspend(() => {
      const before = this.#byApp.get(app.appId) ?? []
      const kept = before.filter(
        (opened) => opened.app === app && ports.some((port) => same(opened.port, port))
      )
      const added = ports
        .filter((port) => !kept.some((opened) => same(opened.port, port)))
        .map((port): Opened => ({ app, port, tcp: undefined, udp: undefined }))
      const gone = before.filter((opened) => !kept.includes(opened))
      if (kept.length + added.length === 0) this.#byApp.delete(app.appId)
      else this.#byApp.set(app.appId, [...kept, ...added])
      return Effect.forEach(gone, (opened) => this.#close(opened), { discard: true }).pipe(
        Effect.andThen(
          Effect.forEach(added, (opened) => this.#open(opened, this.#warn(opened)), { discard: true })
        ),
        Effect.uninterruptible
      )
    })
  }

  /** Closes the app's raw ports. Connections that go over them are not touched. */
  remove(appId: AppId): Effect.Effect<void> {
    return Effect.suspend(() => {
      const opened = this.#byApp.get(appId) ?? []
      this.#byApp.delete(appId)
      return Effect.forEach(opened, (one) => this.#close(one), { discard: true })
    })
  }

  /** Tries again what could not be bound. */
  readonly retry: Effect.Effect<void> = Effect.suspend(() =>
    Effect.forEach(
      [...this.#byApp.values()].flat().filter((opened) => !isWhole(opened)),
      (opened) =>
        this.#open(opened, () => Effect.void).pipe(
          Effect.andThen(Effect.suspend(() => (isWhole(opened) ? this.#isOpen(opened) : Effect.void)))
        ),
      { discard: true }
    )
  )

  readonly closeAll: Effect.Effect<void> = Effect.suspend(() =>
    Effect.forEach([...this.#byApp.keys()], (appId) => this.remove(appId), { discard: true })
  )

  /** Opens what is not open yet. */
  #open(opened: Opened, refused: (reason: string) => Effect.Effect<void>): Effect.Effect<void> {
    const tcp = opened.tcp === undefined ? Effect.catch(this.#openTcp(opened), refused) : Effect.void
    const udp = opened.udp === undefined ? Effect.catch(this.#openUdp(opened), refused) : Effect.void
    return Effect.andThen(tcp, udp)
  }

  #openTcp(opened: Opened): Effect.Effect<void, string> {
    return Effect.suspend(() => {
      const server = createServer(
        {
          allowHalfOpen: true,
          pauseOnConnect: true,
          noDelay: true,
          keepAlive: true,
          keepAliveInitialDelay: PEER_CHECK_MS
        },
        (accepted) => TcpSession.begin(accepted, opened.app, opened.port, this.#context)
      )
      const listening = listen(server, this.#address, opened.port.hostPort, this.#onError)
      return this.#seen(opened, "tcp", listening).pipe(
        Effect.andThen(
          Effect.sync(() => {
            opened.tcp = server
          })
        )
      )
    })
  }

  #openUdp(opened: Opened): Effect.Effect<void, string> {
    const bound = bind(this.#address, opened.port.hostPort, this.#onError)
    return this.#seen(opened, "udp", bound).pipe(
      Effect.flatMap((socket) =>
        Effect.sync(() => {
          opened.udp = new UdpPort(socket, opened.app, opened.port, this.#context)
        })
      )
    )
  }

  #seen<A>(opened: Opened, protocol: Protocol, attempt: Effect.Effect<A, string>) {
    const { app, port } = opened
    return this.#refused.seen(
      app.appId,
      keyOf(port, protocol),
      `its port ${port.name} cannot be reached`,
      attempt
    )
  }

  #close({ app, port, tcp, udp }: Opened): Effect.Effect<void> {
    return Effect.andThen(
      Effect.sync(() => {
        for (const protocol of protocols) this.#refused.forget(app.appId, keyOf(port, protocol))
        udp?.destroy()
      }),
      tcp === undefined ? Effect.void : close(tcp)
    )
  }

  #isOpen({ app, port }: Opened): Effect.Effect<void> {
    return Effect.logInfo(`port ${port.name} of app ${app.appId} is open now: ${port.hostPort}`)
  }

  #warn({ app, port }: Opened): (reason: string) => Effect.Effect<void> {
    return (reason) =>
      Effect.logWarning(
        `port ${port.name} of app ${app.appId} cannot be reached: ${reason}; it is tried again every few seconds`
      )
  }
}

const protocols = ["tcp", "udp"] as const
type Protocol = (typeof protocols)[number]

/** Tells a port's two protocols from each other and from those of the app's other ports. */
const keyOf = ({ hostPort }: RawPort, protocol: Protocol): string => `${protocol} ${hostPort}`

const isWhole = ({ tcp, udp }: Opened): boolean => tcp !== undefined && udp !== undefined

const same = (left: RawPort, right: RawPort): boolean =>
  left.hostPort === right.hostPort && left.guestPort === right.guestPort && left.name === right.name

/** A socket of UDP on this port. Fails with a sentence that names address and port. */
const bind = (
  address: string,
  port: number,
  onError: (error: Error) => void
): Effect.Effect<Socket, string> =>
  Effect.callback<Socket, string>((resume) => {
    const socket = createSocket(isIPv6(address) ? "udp6" : "udp4")
    const refused = (error: NodeJS.ErrnoException) => {
      socket.close()
      resume(Effect.fail(cannotListen(address, port, error, "UDP ")))
    }
    socket.once("error", refused)
    socket.bind({ address, port, exclusive: true }, () => {
      socket.off("error", refused)
      socket.on("error", onError)
      resume(Effect.succeed(socket))
    })
  })
