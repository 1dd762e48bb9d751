/**
 * One request from the moment it is routed until its answer is complete: the only place that knows both legs.
 * Outside Effect: this is the data path.
 *
 * A caller with another protocol on its leg implements `Caller` and makes exchanges of its own. A request for an app
 * that sleeps is held: the beginning of its body is kept, and when that is much the caller is read no further.
 */
import type { UnavailableTarget } from "../../../src/services/Proxy.ts"
import type { Refused } from "./admission.ts"
import type { App, Held } from "./app.ts"
import type { Framing } from "./body.ts"
import { HANG_UP_MS, MAX_HELD_BYTES, MAX_REPLAY_BYTES } from "./limits.ts"
import type { Routes } from "./routes.ts"
import type { Upstream } from "./upstream.ts"
import { keepable, type Wire } from "./wire.ts"

/** The side that asks. Heads are lines of text, one byte per character, without the final empty line. */
export interface Caller {
  /** An answer before the answer, such as 100. */
  interim(head: string): void
  answer(head: string, framing: Framing): void
  answerBytes(bytes: Buffer, start: number, end: number): void
  answerEnd(trailers: string): void
  /** Writes what came so far. False: the caller does not keep up, `Exchange.callerKeepsUp` will be called. */
  flush(): boolean
  /** The app answers 101; from now on bytes pass both ways as they are. */
  switched(head: string): void
  tunnelBytes(bytes: Buffer, start: number, end: number): void
  /** The app sends no more through the tunnel. */
  tunnelEnded(): void
  /** There is no answer: the proxy gives one itself. */
  refuse(refused: Refused): void
  /** The answer breaks off in the middle. */
  truncate(): void
  /** The app takes more of the request's body. */
  resumeRequest(): void
  /** The app is awake: the request is held no longer. */
  released(): void
}

/** What an exchange must know of its request. */
export interface ExchangeRequest {
  /** The whole head as it goes to the app. */
  readonly head: string
  readonly isHead: boolean
  readonly idempotent: boolean
  readonly upgrade: boolean
  readonly chunked: boolean
  /** Bytes of body, as far as that is said. */
  readonly bodyBytes: number
}

export class Exchange implements Held {
  readonly isHead: boolean
  readonly upgrade: boolean
  /** The request is complete and has been written. */
  requestDone = false

  readonly #routes: Routes
  readonly #begunAt = performance.now()
  readonly #app: App
  readonly #caller: Caller
  readonly #head: string
  readonly #idempotent: boolean
  readonly #chunked: boolean
  /** Once sent it cannot be sent again, whatever becomes of it. */
  readonly #once: boolean
  #upstream: Upstream | undefined
  #answerBegun = false
  /** Something of the request may have reached the app. */
  #sent = false
  #retried = false
  #settled = false
  #tunnel = false
  #callerClosed = false
  #appClosed = false
  #trailers = ""
  /** The body so far, so that the request can be sent again; undefined when it must not be, or not all is there. */
  #replay: Array<Buffer> | undefined = []
  #replayBytes = 0
  /** The next attempt at an app that was just woken. */
  #attempt: NodeJS.Timeout | undefined
  /** The body so far, while the request is held. */
  #held: Array<Buffer> | undefined
  #heldBytes = 0

  constructor(routes: Routes, app: App, caller: Caller, request: ExchangeRequest) {
    this.#routes = routes
    this.#app = app
    this.#caller = caller
    this.#head = request.head
    this.isHead = request.isHead
    this.upgrade = request.upgrade
    this.#idempotent = request.idempotent
    this.#chunked = request.chunked
    this.#once = !request.idempotent || request.chunked || request.bodyBytes > MAX_REPLAY_BYTES
    routes.begin(app)
  }

  /** Puts the request's head on a connection to the app, which `flushRequest` writes; or holds it while the app sleeps. */
  start(): void {
    const { pool } = this.#app
    if (pool !== undefined) this.#send(pool.takeIdle(this.#once) ?? pool.connect())
    else this.#hold([], 0)
  }

  get isHeld(): boolean {
    return this.#held !== undefined
  }

  // ------------------------------------------------------------------------------------- from the caller

  requestBytes(bytes: Buffer, start: number, end: number): void {
    const upstream = this.#upstream
    if (this.#held !== undefined) {
      this.#heldBytes += end - start
      this.#held.push(keepable(bytes, start, end))
    }
    if (upstream === undefined) return
    if (this.#replay !== undefined) this.#keep(upstream, bytes, start, end)
    putContent(upstream, this.#chunked, bytes, start, end)
  }

  requestEnd(trailers: string): void {
    this.requestDone = true
    this.#trailers = trailers
    if (this.#chunked) this.#upstream?.put(`0\r\n${trailers}\r\n`)
  }

  /** Writes what was put of the request. False: the app does not keep up, `Caller.resumeRequest` will be called. */
  flushRequest(): boolean {
    const upstream = this.#upstream
    if (upstream === undefined) return this.#heldBytes < MAX_HELD_BYTES
    const keepsUp = upstream.flush()
    if (this.#sent) return keepsUp
    this.#sent = true
    if (upstream.reused && upstream.writeFailed && this.#replay !== undefined) {
      // the kernel took none of it, so the app has seen nothing: any request may be sent again
      upstream.abandon()
      return this.#retry()
    }
    if (!this.#idempotent && !upstream.isConnecting) this.#replay = undefined
    return keepsUp
  }

  callerKeepsUp(): void {
    this.#upstream?.resume()
  }

  /**
   * The caller's connection is closed. `cleanly`: it has said all that it wanted to, which the app may still be
   * reading when the connection is a tunnel.
   */
  callerGone(cleanly: boolean): void {
    this.#callerClosed = true
    const upstream = this.#upstream
    if (this.#tunnel && cleanly && !this.#appClosed) {
      upstream?.endTunnel()
      return
    }
    this.#settle()
    upstream?.abandon()
  }

  // ------------------------------------------------------------------------------------------ a held request

  wokenUp(): void {
    const { pool } = this.#app
    if (pool === undefined) throw new Error(`app ${this.#app.appId} is up, but has no connections`)
    const held = this.#held ?? []
    this.#held = undefined
    this.#replay = held
    this.#replayBytes = this.#heldBytes
    this.#heldBytes = 0
    this.#caller.released()
    const upstream = pool.connect()
    this.#send(upstream)
    for (const piece of held) putContent(upstream, this.#chunked, piece, 0, piece.length)
    if (this.requestDone && this.#chunked) upstream.put(`0\r\n${this.#trailers}\r\n`)
    if (this.flushRequest()) this.#caller.resumeRequest()
  }

  notWoken({ reason, retryAfter }: UnavailableTarget): void {
    this.#held = undefined
    this.#routes.outcomes.refused++
    this.#app.refused++
    this.#settle()
    this.#caller.refuse({ status: 503, reason, retryAfter })
  }

  // ------------------------------------------------------------------------------------------ the tunnel

  toApp(bytes: Buffer, start: number, end: number): boolean {
    this.#upstream?.putBytes(bytes, start, end)
    return this.#upstream?.flush() ?? true
  }

  callerEnded(): void {
    this.#upstream?.endWriting()
  }

  // ---------------------------------------------------------------------------------------- from the app

  interim(head: string): void {
    this.#caller.interim(head)
  }

  answer(status: number, head: string, framing: Framing): void {
    this.#begun(status)
    this.#caller.answer(head, framing)
  }

  answerBytes(bytes: Buffer, start: number, end: number): void {
    this.#caller.answerBytes(bytes, start, end)
  }

  answerEnd(trailers: string): void {
    this.#settle()
    this.#caller.answerEnd(trailers)
  }

  flushAnswer(): void {
    if (!this.#caller.flush()) this.#upstream?.pause()
  }

  switched(head: string): void {
    this.#begun(101)
    this.#tunnel = true
    this.#caller.switched(head)
  }

  fromApp(bytes: Buffer, start: number, end: number): void {
    this.#caller.tunnelBytes(bytes, start, end)
    this.flushAnswer()
  }

  appEnded(): void {
    this.#caller.tunnelEnded()
  }

  appKeepsUp(): void {
    this.#caller.resumeRequest()
  }

  /** The tunnel's connection to the app is closed. `cleanly`: the app has said all that it wanted to. */
  appGone(cleanly: boolean): void {
    this.#appClosed = true
    if (cleanly && !this.#callerClosed) return
    this.#settle()
    if (!this.#callerClosed) this.#caller.truncate()
  }

  /**
   * The app has ended under the request. What it has begun with it cannot finish, and no other life of it can.
   * `untouched`: it had seen nothing of the request.
   */
  lost(untouched: boolean): void {
    if (untouched && this.#replay !== undefined) {
      if (this.#retry()) this.#caller.resumeRequest()
    } else if (!this.#answerBegun) this.#unreachable("the app stopped before it answered")
    else {
      this.#settle()
      this.#caller.truncate()
    }
  }

  /** The connection broke, or what came over it is no answer. It has been closed by then. */
  failed(upstream: Upstream, reason: string): void {
    if (this.#answerBegun) {
      this.#settle()
      this.#caller.truncate()
    } else if (this.#mayHaveComeTooLate(upstream)) {
      this.#retry()
    } else if (this.#isTooEarlyFor(upstream)) {
      this.#tryLater()
    } else {
      this.#unreachable(reason)
    }
  }

  // ---------------------------------------------------------------------------------------------- within

  #begun(status: number): void {
    this.#answerBegun = true
    this.#replay = undefined
    this.#routes.answered(this.#app, status, (performance.now() - this.#begunAt) / 1000)
  }

  #send(upstream: Upstream): void {
    this.#upstream = upstream
    upstream.begin(this)
    upstream.put(this.#head)
  }

  /** Keeps a piece of the body as long as the app might turn out to have hung up, or ended, before the request. */
  #keep(upstream: Upstream, bytes: Buffer, start: number, end: number): void {
    this.#replayBytes += end - start
    const mayHaveHungUp = upstream.reused && !upstream.answered && this.#replayBytes <= MAX_REPLAY_BYTES
    // a connection that is not there yet takes no more than a piece or two
    if (mayHaveHungUp || upstream.isConnecting) {
      this.#replay?.push(keepable(bytes, start, end))
    } else this.#replay = undefined
  }

  #hold(body: Array<Buffer>, bytes: number): void {
    this.#upstream = undefined
    this.#held = body
    this.#heldBytes = bytes
    this.#routes.hold(this.#app, this)
  }

  #retry(): boolean {
    this.#retried = true
    const { pool, wake } = this.#app
    if (pool === undefined) {
      if (wake === undefined) this.#unreachable("the app stopped before it answered")
      else this.#hold(this.#replay ?? [], this.#replayBytes)
      return true
    }
    const upstream = pool.connect()
    this.#send(upstream)
    for (const piece of this.#replay ?? []) putContent(upstream, this.#chunked, piece, 0, piece.length)
    if (this.requestDone && this.#chunked) upstream.put(`0\r\n${this.#trailers}\r\n`)
    return upstream.flush()
  }

  /**
   * The app may have hung up on a connection that was in nobody's use, at the moment when it was used again: that shows at once. An
   * app that ends later ends the request with it, or a request without an answer would wake the app that was put to sleep under it.
   */
  #mayHaveComeTooLate(upstream: Upstream): boolean {
    return (
      upstream.reused &&
      !upstream.answered &&
      !this.#retried &&
      this.#replay !== undefined &&
      performance.now() - this.#begunAt < HANG_UP_MS
    )
  }

  /**
   * The app was just woken, and has not taken the request. One that was taken is not given again, idempotent or not: an app that
   * dies of it would die of it again and again.
   */
  #isTooEarlyFor(upstream: Upstream): boolean {
    return (
      performance.now() < this.#app.settlesAt &&
      this.#replay !== undefined &&
      !upstream.answered &&
      !upstream.reached
    )
  }

  #tryLater(): void {
    this.#upstream = undefined
    this.#held = this.#replay ?? []
    this.#heldBytes = this.#replayBytes
    this.#attempt = this.#routes.tryLater(() => {
      const { pool, wake } = this.#app
      if (pool !== undefined) this.wokenUp()
      else if (wake !== undefined) this.#routes.hold(this.#app, this)
      else this.#unreachable("the app stopped before it answered")
    })
  }

  #unreachable(reason: string): void {
    this.#routes.outcomes.unreachable++
    this.#app.unreachable++
    this.#settle()
    this.#caller.refuse({ status: 502, reason })
  }

  /** Nothing of this request is open any more. */
  #settle(): void {
    if (this.#settled) return
    this.#settled = true
    this.#upstream = undefined
    clearTimeout(this.#attempt)
    if (this.#held !== undefined) {
      this.#held = undefined
      this.#routes.leave(this.#app, this)
    }
    this.#routes.end(this.#app)
  }
}

/** Puts a piece of a body, framed as it goes out. */
export const putContent = (wire: Wire, chunked: boolean, bytes: Buffer, start: number, end: number): void => {
  if (!chunked) {
    wire.putBytes(bytes, start, end)
    return
  }
  wire.put(`${(end - start).toString(16)}\r\n`)
  wire.putBytes(bytes, start, end)
  wire.put("\r\n")
}
