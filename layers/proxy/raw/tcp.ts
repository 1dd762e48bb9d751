/** One connection to a raw port, and the one to the guest that goes with it. Outside Effect: this is the data path. */
import { Socket } from "node:net"
import type { RawPort } from "../../../src/services/Proxy.ts"
import { adopt } from "../http/accept.ts"
import type { App, Held, Link } from "../http/app.ts"
import { PEER_CHECK_MS } from "../http/limits.ts"
import { NEVER } from "../http/sweep.ts"
import { keepable, type OnRead, Wire } from "../http/wire.ts"
import type { RawContext } from "./context.ts"
import { MAX_HELD_BYTES } from "./limits.ts"

export class TcpSession implements Held, Link {
  readonly #context: RawContext
  readonly #app: App
  readonly #port: RawPort
  readonly #client: Leg
  /** Absent until the guest is dialled. */
  #guest: Leg | undefined
  /** What the client has sent before the guest took the connection; undefined afterwards. */
  #held: Array<Buffer> | undefined = []
  #heldBytes = 0
  /** Until when a refusal of the guest is not yet its last word; in ms of `performance.now`. */
  #settlesAt = 0
  #retry: NodeJS.Timeout | undefined
  #over = false

  /** Takes over a connection that was just accepted, paused. */
  static begin(accepted: Socket, app: App, port: RawPort, context: RawContext): void {
    app.arrivals++
    if (app.target.kind === "unavailable") {
      app.tcp.down++
      refuse(accepted)
    } else if (
      context.tcpSessions >= context.limits.tcpSessionsOfHost ||
      app.tcp.open >= context.limits.tcpSessionsOfApp
    ) {
      app.tcp.dropped++
      refuse(accepted)
    } else new TcpSession(accepted, app, port, context).#reach()
  }

  private constructor(accepted: Socket, app: App, port: RawPort, context: RawContext) {
    this.#context = context
    this.#app = app
    this.#port = port
    app.tcp.open++
    context.tcpSessions++
    context.open.add(this)
    this.#client = new Leg(context, (onread) => adopt(accepted, onread), {
      received: (bytes, start, end) => this.#fromClient(bytes, start, end),
      ended: () => this.#clientEnded(),
      drained: () => this.#guest?.resume(),
      gone: (clean) => this.#clientGone(clean),
      expired: () => this.destroy()
    })
  }

  /** Closes both sides at once. */
  destroy(): void {
    this.#client.reset()
    this.#guest?.reset()
    this.#end()
  }

  wokenUp(): void {
    this.#settlesAt = performance.now() + this.#context.timeouts.settle
    this.#dial()
  }

  notWoken(): void {
    this.#app.tcp.wakeRefused++
    this.destroy()
  }

  lost(): void {
    if (this.#held === undefined) {
      this.destroy()
      return
    }
    const guest = this.#guest
    this.#guest = undefined
    guest?.reset()
    clearTimeout(this.#retry)
    this.#reach()
  }

  // -------------------------------------------------------------------------------------- to the guest

  #reach(): void {
    const { target } = this.#app
    this.#app.links.delete(this)
    if (target.kind === "up") this.#dial()
    else if (target.kind === "asleep") this.#context.routes.hold(this.#app, this)
    else {
      this.#app.tcp.down++
      this.destroy()
    }
  }

  #dial(): void {
    const { target } = this.#app
    if (target.kind !== "up") {
      this.#reach()
      return
    }
    const { timeouts, sweep } = this.#context
    const guest = new Leg(
      this.#context,
      (onread) =>
        new Socket({ onread, allowHalfOpen: true } as ConstructorParameters<typeof Socket>[0])
          .setNoDelay(true)
          .setKeepAlive(true, PEER_CHECK_MS)
          .connect({ host: target.host, port: this.#port.guestPort }),
      {
        received: (bytes, start, end) => this.#fromGuest(bytes, start, end),
        ended: () => this.#guestEnded(),
        drained: () => this.#client.resume(),
        gone: (clean, errorCode) => this.#guestGone(guest, clean, errorCode),
        expired: () => {
          if (this.#held === undefined) this.destroy()
          else this.#notTaken()
        }
      }
    )
    this.#guest = guest
    this.#app.links.add(this)
    guest.deadline = sweep.after(timeouts.connect)
    guest.socket.once("connect", () => this.#taken(guest))
  }

  #taken(guest: Leg): void {
    const held = this.#held ?? []
    this.#held = undefined
    guest.deadline = NEVER
    this.#app.tcp.relayed++
    for (const piece of held) {
      this.#app.tcp.bytesIn += piece.length
      guest.putBytes(piece, 0, piece.length)
    }
    if (guest.flush()) this.#client.resume()
    if (this.#client.peerEnded) this.#clientEnded()
  }

  #notTaken(): void {
    this.#app.tcp.notTaken++
    this.destroy()
  }

  #guestGone(guest: Leg, clean: boolean, errorCode: string): void {
    if (this.#over || guest !== this.#guest) return
    if (this.#held === undefined) {
      if (clean) this.#endIfDone()
      else this.destroy()
    } else if (errorCode === "ECONNREFUSED" && performance.now() < this.#settlesAt) {
      this.#guest = undefined
      this.#retry = setTimeout(() => this.#dial(), this.#context.timeouts.retry)
    } else this.#notTaken()
  }

  // ------------------------------------------------------------------------------------ both directions

  #fromClient(bytes: Buffer, start: number, end: number): void {
    const guest = this.#guest
    if (this.#held !== undefined || guest === undefined) {
      this.#heldBytes += end - start
      this.#held?.push(keepable(bytes, start, end))
      if (this.#heldBytes >= MAX_HELD_BYTES) this.#client.pause()
      return
    }
    this.#app.tcp.bytesIn += end - start
    guest.putBytes(bytes, start, end)
    if (!guest.flush()) this.#client.pause()
    this.#watch()
  }

  #fromGuest(bytes: Buffer, start: number, end: number): void {
    this.#app.tcp.bytesOut += end - start
    this.#client.putBytes(bytes, start, end)
    if (!this.#client.flush()) this.#guest?.pause()
    this.#watch()
  }

  #clientEnded(): void {
    if (this.#held === undefined) this.#guest?.endWriting()
    this.#watch()
  }

  #guestEnded(): void {
    this.#client.endWriting()
    this.#watch()
  }

  #clientGone(clean: boolean): void {
    if (this.#over) return
    if (clean && this.#held === undefined) this.#endIfDone()
    else this.destroy()
  }

  /** A side that has ended may be gone altogether, which only a write would tell. */
  #watch(): void {
    if (this.#client.peerEnded || this.#guest?.peerEnded === true) {
      this.#client.deadline = this.#context.sweep.after(this.#context.timeouts.halfClosed)
    }
  }

  #endIfDone(): void {
    if (this.#client.closed && this.#guest?.closed === true) this.#end()
  }

  #end(): void {
    if (this.#over) return
    this.#over = true
    clearTimeout(this.#retry)
    this.#context.open.delete(this)
    this.#app.links.delete(this)
    this.#context.routes.leave(this.#app, this)
    this.#app.tcp.open--
    this.#context.tcpSessions--
    this.#context.routes.forgetIfQuiet(this.#app)
  }
}

const refuse = (accepted: Socket): void => {
  accepted.on("error", () => undefined)
  accepted.resetAndDestroy()
}

interface LegEvents {
  readonly received: (bytes: Buffer, start: number, end: number) => void
  readonly ended: () => void
  readonly drained: () => void
  /** `clean`: both sides had said all that they wanted to. */
  readonly gone: (clean: boolean, errorCode: string) => void
  readonly expired: () => void
}

/** One of the two connections. */
class Leg extends Wire {
  readonly #events: LegEvents

  constructor(context: RawContext, open: (onread: OnRead) => Socket, events: LegEvents) {
    super(context.sweep, context.onDefect, open)
    this.#events = events
  }

  protected override received(bytes: Buffer, start: number, end: number): void {
    this.#events.received(bytes, start, end)
  }

  protected override ended(): void {
    this.#events.ended()
  }

  protected override drained(): void {
    this.#events.drained()
  }

  protected override gone(): void {
    this.#events.gone(this.errorCode === "" && this.peerEnded, this.errorCode)
  }

  override expired(): void {
    this.#events.expired()
  }
}
