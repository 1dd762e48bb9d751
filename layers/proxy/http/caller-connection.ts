/**
 * One connection of a caller that speaks HTTP/1.1 or 1.0: requests in, answers out, one after the other. Outside
 * Effect: this is the data path.
 */
import type { Socket } from "node:net"
import { adopt, asItIs } from "./accept.ts"
import { type Addressee, admit, isAdmitted, type Refused } from "./admission.ts"
import { BodyReader, type Framing, MALFORMED } from "./body.ts"
import type { Crowd, Member } from "./crowd.ts"
import { type Caller, Exchange, putContent } from "./exchange.ts"
import { CHUNKED } from "./framing.ts"
import { COMPLETE, HeadReader, INCOMPLETE } from "./head.ts"
import { MAX_LINGER_BYTES, type Timeouts } from "./limits.ts"
import { ownAnswer } from "./own-answers.ts"
import { type Peer, RequestHead } from "./request.ts"
import { NEVER, type Sweep } from "./sweep.ts"
import { keepable, type OnDefect, Wire } from "./wire.ts"

/** What the connections of one listener share. */
export interface ListenerContext extends Addressee {
  readonly sweep: Sweep
  readonly timeouts: Timeouts
  readonly onDefect: OnDefect
  readonly crowd: Crowd
}

/** Shared by all connections, and taken over by one while the head that it reads is incomplete. */
let spareReader = new HeadReader("request")
const requestHead = new RequestHead()

/** Between requests, or within the head of one. */
const HEAD = 0
/** Within the body of a request. */
const BODY = 1
/** The request is complete, its answer is not. */
const ANSWER = 2
const TUNNEL = 3
/** The last answer is written; what still comes is thrown away. */
const LINGER = 4

/** TLS that is spoken on a connection. */
export interface Secured {
  /** The hostname that it was begun with, lowercase; undefined when it was begun without. */
  readonly servername: string | undefined
}

export class CallerConnection extends Wire implements Caller, Member {
  readonly #context: ListenerContext
  readonly #servername: string | undefined
  readonly #body = new BodyReader()
  readonly #peer: Peer
  #phase = HEAD
  #exchange: Exchange | undefined
  #reader: HeadReader | undefined
  /** The beginning of a head that is incomplete, or what came before its turn. */
  #kept: Buffer | undefined
  #isHead = false
  #http10 = false
  #keepAlive = true
  #answerBegun = false
  #answerChunked = false
  #thrownAway = 0

  /** `secured`: the connection speaks TLS, whose handshake is over; absent when it is plain. */
  constructor(accepted: Socket, context: ListenerContext, secured?: Secured) {
    const open = secured === undefined ? adopt : asItIs
    super(context.sweep, context.onDefect, (onread) => open(accepted, onread))
    this.#context = context
    this.#servername = secured?.servername
    this.#peer = peerOf(this.socket, secured !== undefined)
    this.deadline = this.sweep.after(context.timeouts.head)
    context.crowd.add(this)
  }

  // ------------------------------------------------------------------------------------------ the wire

  protected override received(bytes: Buffer, start: number, end: number): void {
    if (this.#phase === TUNNEL) {
      this.#tunnelToApp(bytes, start, end)
      return
    }
    if (this.#kept === undefined) {
      this.#take(bytes, start, end)
      return
    }
    const piece = Buffer.concat([this.#kept, bytes.subarray(start, end)])
    this.#kept = undefined
    this.#take(piece, 0, piece.length)
  }

  protected override ended(): void {
    switch (this.#phase) {
      case HEAD:
        // What has come before the end is answered, as soon as the caller has taken the answers before.
        if (this.#hasKept) break
        this.#reader = undefined
        this.#kept = undefined
        this.endWriting()
        break
      case BODY:
        this.#abandonExchange()
        if (this.#answerBegun) this.reset()
        else this.#refuse(400, "the request ended in the middle of its body")
        break
      case TUNNEL:
        this.#exchange?.callerEnded()
        break
      default:
        // As a rule it has left: of many who came and went in a long wake only those who stayed are to be served.
        if (this.#isAsked && this.#exchange?.isHeld === true) this.#ask()
    }
    this.#watch()
  }

  protected override drained(): void {
    if (this.#exchange !== undefined) this.#exchange.callerKeepsUp()
    else if (this.#phase === HEAD) this.#takeKept()
  }

  protected override gone(): void {
    this.#context.crowd.delete(this)
    const exchange = this.#exchange
    this.#exchange = undefined
    exchange?.callerGone(this.peerEnded && this.errorCode === "")
  }

  get isSpare(): boolean {
    return (this.#phase === HEAD || this.#phase === LINGER) && this.socket.writableLength === 0
  }

  override expired(): void {
    if (this.#phase === HEAD && this.#reader !== undefined) {
      this.#refuse(408, "the head of the request did not come in time")
    } else if (this.#phase === LINGER && this.socket.writableLength > 0) {
      // the caller still reads its answer, and for that there is no limit
      this.deadline = this.sweep.after(this.#context.timeouts.linger)
    } else if (this.#isUnanswered && !this.#http10) {
      if (this.#isUnheard) this.#question()
      this.#watch()
    } else this.destroy()
  }

  override destroy(): void {
    super.destroy()
    this.#abandonExchange()
  }

  override reset(): void {
    super.reset()
    this.#abandonExchange()
  }

  // --------------------------------------------------------------------------------------- the request

  /** Deals with all of these bytes. */
  #take(bytes: Buffer, start: number, end: number): void {
    let at = start
    while (at < end && !this.closed) {
      if (this.#phase === HEAD) at = this.#readHead(bytes, at, end)
      else if (this.#phase === BODY) at = this.#readBody(bytes, at, end)
      else if (this.#phase === LINGER) {
        this.#throwAway(end - at)
        return
      } else {
        // the next request, or the first bytes of a tunnel, before the answer to this one
        this.#kept = keepable(bytes, at, end)
        this.pause()
        break
      }
    }
    const exchange = this.#exchange
    if (exchange !== undefined && !exchange.flushRequest() && this.#phase === BODY) this.pause()
    this.#watch()
  }

  /** Requests that came while another was answered. */
  get #hasKept(): boolean {
    return this.#kept !== undefined && this.#reader === undefined
  }

  #takeKept(): void {
    const kept = this.#kept
    if (kept === undefined || this.#reader !== undefined) return
    this.#kept = undefined
    this.resume()
    this.#take(kept, 0, kept.length)
    // The end has come long ago: a request that is incomplete now stays so.
    if (this.peerEnded && !this.closed && (this.#phase === HEAD || this.#phase === BODY)) this.ended()
  }

  /** Gives where it stopped reading. */
  #readHead(bytes: Buffer, at: number, end: number): number {
    const reader = this.#reader ?? spareReader
    const result = reader.read(bytes, at, end)
    if (result === INCOMPLETE) {
      if (this.#reader === undefined) {
        spareReader = new HeadReader("request")
        this.#reader = reader
        this.deadline = this.sweep.after(this.#context.timeouts.head)
      }
      this.#kept = keepable(bytes, at, end)
      return end
    }
    this.#reader = undefined
    let next = end
    this.#answerBegun = false
    this.#isHead = false
    if (result !== COMPLETE) this.#refuse(result, `the request is not HTTP: ${reader.reason}`)
    else {
      next = at + reader.length
      this.#begin(reader, bytes, at)
    }
    reader.reset()
    return next
  }

  #begin(reader: HeadReader, bytes: Buffer, base: number): void {
    const request = requestHead
    const understood = request.read(reader, bytes, base)
    this.#isHead = request.isHead
    this.#http10 = request.http10
    this.#keepAlive = request.keepAlive
    if (!understood) {
      this.#refuse(request.problem, `the request is not HTTP: ${request.reason}`)
      return
    }
    const app = admit(this.#context, request.host, this.#servername)
    if (!isAdmitted(app)) {
      this.#answerOurselves(app)
      return
    }
    this.deadline = NEVER
    const chunked = request.framing === CHUNKED
    this.#exchange = new Exchange(this.#context.routes, app, this, {
      head: request.forwarded(reader, bytes, base, this.#peer),
      isHead: request.isHead,
      idempotent: request.idempotent,
      upgrade: request.upgrade,
      chunked,
      bodyBytes: request.framing
    })
    this.#exchange.start()
    if (chunked || request.framing > 0) {
      this.#body.begin(chunked ? "chunked" : "length", request.framing)
      this.#phase = BODY
    } else {
      this.#phase = ANSWER
      this.#exchange.requestEnd("")
    }
  }

  #readBody(bytes: Buffer, at: number, end: number): number {
    const body = this.#body
    const next = body.read(bytes, at, end)
    if (next === MALFORMED) {
      this.#abandonExchange()
      if (this.#answerBegun) this.reset()
      else this.#refuse(400, "the request is not HTTP: its chunks are malformed")
      return end
    }
    if (body.contentEnd > body.contentStart) {
      this.#exchange?.requestBytes(bytes, body.contentStart, body.contentEnd)
    }
    if (body.done) {
      this.#phase = ANSWER
      this.#exchange?.requestEnd(body.trailers)
    }
    return next
  }

  // ---------------------------------------------------------------------------------------- the answer

  interim(head: string): void {
    if (!this.#http10) this.put(`${head}\r\n`)
  }

  answer(head: string, framing: Framing): void {
    this.#answerBegun = true
    this.deadline = NEVER
    if (this.peerEnded) this.#watch()
    const unsized = framing === "chunked" || framing === "until-close"
    this.#answerChunked = unsized && !this.#http10
    const isLast = this.peerEnded && !this.#hasKept
    if ((unsized && this.#http10) || this.#phase === BODY || isLast) this.#keepAlive = false
    let own = this.#answerChunked ? "transfer-encoding: chunked\r\n" : ""
    if (!this.#keepAlive) own += "connection: close\r\n"
    else if (this.#http10) own += "connection: keep-alive\r\n"
    this.put(`${head}${own}\r\n`)
  }

  answerBytes(bytes: Buffer, start: number, end: number): void {
    putContent(this, this.#answerChunked, bytes, start, end)
    this.#watch()
  }

  answerEnd(trailers: string): void {
    this.#exchange = undefined
    if (this.#answerChunked) this.put(`0\r\n${trailers}\r\n`)
    if (!this.#keepAlive) {
      this.#end()
      return
    }
    const keepsUp = this.flush()
    this.#phase = HEAD
    this.deadline = this.sweep.after(this.#context.timeouts.keepAlive)
    if (this.peerEnded && !this.#hasKept) this.endWriting()
    else if (keepsUp) this.#takeKept()
  }

  resumeRequest(): void {
    if (this.#phase === BODY || this.#phase === TUNNEL) this.resume()
  }

  refuse(refused: Refused): void {
    this.#exchange = undefined
    this.#answerOurselves(refused)
  }

  truncate(): void {
    this.#exchange = undefined
    this.flush()
    this.reset()
  }

  released(): void {
    this.deadline = NEVER
    this.#watch()
  }

  // ---------------------------------------------------------------------------------------- the tunnel

  switched(head: string): void {
    this.#answerBegun = true
    this.#phase = TUNNEL
    this.deadline = NEVER
    this.#watch()
    this.put(`${head}connection: upgrade\r\n\r\n`)
    const early = this.#kept
    this.#kept = undefined
    this.resume()
    if (early !== undefined) this.#tunnelToApp(early, 0, early.length)
    if (this.peerEnded) this.#exchange?.callerEnded()
  }

  tunnelBytes(bytes: Buffer, start: number, end: number): void {
    this.putBytes(bytes, start, end)
    this.#watch()
  }

  tunnelEnded(): void {
    this.endWriting()
    this.deadline = this.sweep.after(this.#context.timeouts.halfClosed)
  }

  #tunnelToApp(bytes: Buffer, start: number, end: number): void {
    if (this.#exchange?.toApp(bytes, start, end) === false) this.pause()
    if (this.socket.writableEnded) this.deadline = this.sweep.after(this.#context.timeouts.halfClosed)
  }

  // -------------------------------------------------------------------------------------------- the end

  #refuse(status: number, reason: string): void {
    this.#context.routes.outcomes.refused++
    this.#answerOurselves({ status, reason })
  }

  #answerOurselves(refused: Refused): void {
    const answer = ownAnswer(refused, this.#isHead)
    this.putBytes(answer, 0, answer.length)
    this.#end()
  }

  /**
   * Closes the sending side after the answer and waits for the caller to close its own: closing both while the
   * caller still sends could take the answer away from it before it is read.
   */
  #end(): void {
    this.#phase = LINGER
    this.#kept = undefined
    this.deadline = this.sweep.after(this.#context.timeouts.linger)
    this.endWriting()
    this.resume()
  }

  #throwAway(bytes: number): void {
    this.#thrownAway += bytes
    if (this.#thrownAway > MAX_LINGER_BYTES) this.destroy()
  }

  #abandonExchange(): void {
    const exchange = this.#exchange
    this.#exchange = undefined
    exchange?.callerGone(false)
  }

  /** Who has left hangs up at what is written, which the next write shows. */
  #ask(): void {
    this.#question()
    setTimeout(() => {
      if (!this.closed && this.#isAsked) this.#question()
    }, this.#context.timeouts.hangUp).unref()
  }

  /** The one interim answer that every client knows to skip. */
  #question(): void {
    this.put("HTTP/1.1 100 Continue\r\n\r\n")
    this.flush()
  }

  /**
   * A caller that has closed its sending side, or is not read, may be gone altogether, which only a write would tell.
   */
  #watch(): void {
    const { halfClosed, halfClosedHeld, probe } = this.#context.timeouts
    if (this.#isAsked) this.deadline = this.sweep.after(probe)
    else if (this.peerEnded) {
      const held = this.#exchange?.isHeld === true
      this.deadline = this.sweep.after(held ? halfClosedHeld : halfClosed)
    }
  }

  /** It is asked whether it is still there. */
  get #isAsked(): boolean {
    return this.#isUnheard && this.#isUnanswered && !this.#http10
  }

  /** Nothing that the caller does would be seen. */
  get #isUnheard(): boolean {
    return this.peerEnded || this.isPaused
  }

  get #isUnanswered(): boolean {
    return this.#exchange !== undefined && !this.#answerBegun
  }
}

/** Whom the app is told that a connection comes from. */
export const peerOf = (socket: Socket, secured: boolean): Peer => ({
  address: plainAddress(socket.remoteAddress ?? "unknown"),
  proto: secured ? "https" : "http"
})

/** An IPv4 address that came over an IPv6 socket, as IPv4. */
const plainAddress = (address: string) => (address.startsWith("::ffff:") ? address.slice(7) : address)
