/** One connection to an app. Outside Effect: this is the data path. */
import { AnswerHead } from "./answer.ts"
import type { Link } from "./app.ts"
import { BodyReader, MALFORMED } from "./body.ts"
import type { Exchange } from "./exchange.ts"
import { ForgivingSocket } from "./forgiving-socket.ts"
import { COMPLETE, HeadReader, INCOMPLETE } from "./head.ts"
import { PEER_CHECK_MS } from "./limits.ts"
import type { Pool } from "./pool.ts"
import { NEVER } from "./sweep.ts"
import { keepable, type OnRead, Wire } from "./wire.ts"

/** Shared by all connections, and taken over by one while the head that it reads is incomplete. */
let spareReader = new HeadReader("answer")
const answerHead = new AnswerHead()

const IDLE = 0
const HEAD = 1
const BODY = 2
const TUNNEL = 3

export class Upstream extends Wire implements Link {
  /** When it was last given back to the pool, in ticks of the sweep. */
  idleSince = 0
  /** It has carried a request before the present one. */
  reused = false
  /** The app has accepted it. */
  reached = false
  /** A byte of an answer to the present request has come. */
  answered = false

  readonly #pool: Pool
  readonly #body = new BodyReader()
  #exchange: Exchange | undefined
  #phase = IDLE
  #reader: HeadReader | undefined
  /** The beginning of a head that is incomplete. */
  #kept: Buffer | undefined
  #keepAlive = false

  constructor(pool: Pool) {
    super(pool.context.sweep, pool.context.onDefect, (onread: OnRead) =>
      new ForgivingSocket({
        onread,
        allowHalfOpen: true,
        noDelay: true,
        keepAlive: true,
        keepAliveInitialDelay: PEER_CHECK_MS
      }).connect({ host: pool.host, port: pool.port })
    )
    this.#pool = pool
    pool.links.add(this)
    this.deadline = this.sweep.after(pool.context.timeouts.connect)
    this.socket.once("connect", () => {
      this.reached = true
      this.deadline = NEVER
    })
  }

  /** Nothing stands against another request on it. */
  get isUsable(): boolean {
    return !this.closed && !this.peerEnded && !this.writeFailed
  }

  /** The app has not accepted it yet: nothing that was written has left. */
  get isConnecting(): boolean {
    return this.socket.connecting
  }

  /** What was written last could not be handed to the kernel. */
  get writeFailed(): boolean {
    return (this.socket as ForgivingSocket).writeFailed
  }

  /** The exchange whose request is written next. */
  begin(exchange: Exchange): void {
    this.#exchange = exchange
    this.#phase = HEAD
    this.answered = false
    if (!this.socket.connecting) this.deadline = NEVER
  }

  /** Closes it without a word to its exchange. */
  abandon(): void {
    this.#exchange = undefined
    this.destroy()
  }

  /** The caller has left the tunnel: the app gets what is still to be written, and a while to close its side. */
  endTunnel(): void {
    this.deadline = this.sweep.after(this.#pool.context.timeouts.halfClosed)
    this.endWriting()
  }

  protected override received(bytes: Buffer, start: number, end: number): void {
    const exchange = this.#exchange
    // nobody has asked: what comes now could pass for the answer to the next request
    if (exchange === undefined) {
      this.destroy()
      return
    }
    this.answered = true
    if (this.#phase === TUNNEL) {
      exchange.fromApp(bytes, start, end)
      return
    }
    let piece = bytes
    let at = start
    let until = end
    if (this.#kept !== undefined) {
      piece = Buffer.concat([this.#kept, bytes.subarray(start, end)])
      at = 0
      until = piece.length
      this.#kept = undefined
    }
    while (this.#exchange === exchange && at < until) {
      at =
        this.#phase === HEAD
          ? this.#readHead(exchange, piece, at, until)
          : this.#readBody(exchange, piece, at, until)
    }
    if (this.#exchange === exchange) exchange.flushAnswer()
  }

  protected override ended(): void {
    const exchange = this.#exchange
    if (exchange === undefined) {
      this.#pool.hungUp(this)
      this.#closeIdle()
      return
    }
    if (this.#phase === TUNNEL) {
      exchange.appEnded()
      return
    }
    if (this.#phase === BODY && this.#body.endsWithConnection) {
      this.#finish(exchange, false)
      return
    }
    this.#fail("the app closed the connection before its answer was complete")
  }

  protected override drained(): void {
    this.#exchange?.appKeepsUp()
  }

  /** The app's microVM has ended, which no packet may tell. */
  lost(): void {
    const exchange = this.#exchange
    if (exchange === undefined) {
      this.#closeIdle()
      return
    }
    const untouched = this.isConnecting
    this.abandon()
    if (this.#phase === TUNNEL) exchange.appGone(false)
    else exchange.lost(untouched)
  }

  protected override gone(): void {
    this.#pool.links.delete(this)
    if (this.#phase === TUNNEL) {
      this.#exchange?.appGone(this.peerEnded && this.errorCode === "")
      return
    }
    if (this.#exchange === undefined) {
      if (this.errorCode !== "") this.#pool.hungUp(this)
      this.#pool.drop(this)
      return
    }
    this.#fail(
      this.errorCode === "ECONNREFUSED"
        ? "the app does not accept connections"
        : "the connection to the app broke"
    )
  }

  override expired(): void {
    const exchange = this.#exchange
    if (exchange === undefined) this.#closeIdle()
    else if (this.#phase === TUNNEL) {
      this.abandon()
      exchange.appGone(false)
    } else this.#fail("the app does not accept connections in time")
  }

  #closeIdle(): void {
    this.#pool.drop(this)
    this.destroy()
  }

  #fail(reason: string): void {
    const exchange = this.#exchange
    this.abandon()
    if (this.reused && !this.answered) this.#pool.hungUp(this)
    exchange?.failed(this, reason)
  }

  /** Gives where it stopped reading. */
  #readHead(exchange: Exchange, bytes: Buffer, at: number, end: number): number {
    const reader = this.#reader ?? spareReader
    const result = reader.read(bytes, at, end)
    if (result === INCOMPLETE) {
      if (this.#reader === undefined) spareReader = new HeadReader("answer")
      this.#reader = reader
      this.#kept = keepable(bytes, at, end)
      return end
    }
    this.#reader = undefined
    if (result === COMPLETE && answerHead.read(reader, bytes, at, exchange.isHead)) {
      const next = at + reader.length
      this.#takeHead(exchange, reader, bytes, at, next, end)
      reader.reset()
      return this.#phase === TUNNEL ? end : next
    }
    const problem = result === COMPLETE ? answerHead.reason : reader.reason
    reader.reset()
    this.#fail(`the answer of the app is not HTTP: ${problem}`)
    return end
  }

  #takeHead(
    exchange: Exchange,
    reader: HeadReader,
    bytes: Buffer,
    base: number,
    next: number,
    end: number
  ): void {
    const text = answerHead.forwarded(reader, bytes, base)
    if (answerHead.isInterim) {
      exchange.interim(text)
      return
    }
    if (answerHead.status === 101) {
      if (!exchange.upgrade) {
        this.#fail("the app switched protocols without being asked")
        return
      }
      this.#phase = TUNNEL
      exchange.switched(text)
      if (next < end) exchange.fromApp(bytes, next, end)
      return
    }
    this.#keepAlive = answerHead.keepAlive
    this.#body.begin(answerHead.framing, answerHead.length)
    this.#phase = BODY
    exchange.answer(answerHead.status, text, answerHead.framing)
    if (this.#body.done) this.#finish(exchange, next < end)
  }

  #readBody(exchange: Exchange, bytes: Buffer, at: number, end: number): number {
    const next = this.#body.read(bytes, at, end)
    if (next === MALFORMED) {
      this.#fail("the answer of the app is not HTTP: its chunks are malformed")
      return end
    }
    const { contentStart, contentEnd } = this.#body
    if (contentEnd > contentStart) exchange.answerBytes(bytes, contentStart, contentEnd)
    if (this.#body.done) this.#finish(exchange, next < end)
    return next
  }

  /** The answer is complete. `surplus`: more bytes came than belong to it. */
  #finish(exchange: Exchange, surplus: boolean): void {
    this.#exchange = undefined
    this.#phase = IDLE
    if (this.#keepAlive && !surplus && exchange.requestDone && this.isUsable) {
      this.reused = true
      this.idleSince = this.sweep.tick
      this.deadline = this.sweep.after(this.#pool.context.timeouts.upstreamIdle)
      this.resume()
      this.#pool.giveBack(this)
    } else this.destroy()
    exchange.answerEnd(this.#body.trailers)
  }
}
