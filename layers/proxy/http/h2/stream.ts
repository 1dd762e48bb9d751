/** One request of a caller that speaks HTTP/2. Outside Effect: this is the data path. */
import { constants, type ServerHttp2Stream } from "node:http2"
import { admit, isAdmitted, type Refused } from "../admission.ts"
import type { Framing } from "../body.ts"
import { trailerLines } from "../body.ts"
import { type Caller, Exchange } from "../exchange.ts"
import { CHUNKED } from "../framing.ts"
import { COMPLETE, HeadReader } from "../head.ts"
import { MAX_INTERIM_ANSWERS } from "../limits.ts"
import { ownBody, ownFields } from "../own-answers.ts"
import { RequestHead } from "../request.ts"
import { NEVER, type Perishable } from "../sweep.ts"
import { keepable } from "../wire.ts"
import { asObject, fieldsIn, fieldsOf, statusOf } from "./answer.ts"
import type { Http2Connection } from "./connection.ts"
import { type HeaderList, toHead } from "./request.ts"
import { acceptFor, makeKey } from "./websocket.ts"

const { NGHTTP2_CONNECT_ERROR, NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR, NGHTTP2_PROTOCOL_ERROR } = constants

/** Whole heads are read in it, one after the other. */
const reader = new HeadReader("request")
const requestHead = new RequestHead()

const LENGTH_UNSAID = -1

export class Http2Request implements Caller, Perishable {
  deadline = NEVER
  readonly #stream: ServerHttp2Stream
  readonly #connection: Http2Connection
  #exchange: Exchange | undefined
  #isHead = false
  /** The key of the WebSocket that the request opens. */
  #webSocketKey: string | undefined
  #tunnel = false
  /** Everything that the caller sends has come. */
  #received = false
  /** Bytes of the body that are still to come, or `LENGTH_UNSAID`. */
  #left = LENGTH_UNSAID
  #requestTrailers = ""
  #answerTrailers = ""
  /** The end of the answer waits for its trailers. */
  #awaitsTrailers = false
  #interim = 0

  constructor(stream: ServerHttp2Stream, connection: Http2Connection) {
    this.#stream = stream
    this.#connection = connection
    stream.on("error", () => undefined)
    stream.on("aborted", () => connection.guarded(this, () => this.#gone()))
    stream.on("close", () => connection.guarded(this, () => this.#gone()))
  }

  /** `ends`: the caller sends nothing after the head. */
  begin(list: HeaderList, ends: boolean): void {
    this.#received = ends
    const head = toHead(list, ends, () => {
      this.#webSocketKey = makeKey()
      return this.#webSocketKey
    })
    this.#isHead = list.some((name, at) => at % 2 === 0 && name === ":method" && list[at + 1] === "HEAD")
    if ("status" in head) this.#refuse(head.status, `the request is not HTTP: ${head.reason}`)
    else this.#route(Buffer.from(head.text, "latin1"))
  }

  /** Closes the stream at once. */
  abort(): void {
    if (!this.#stream.closed) this.#stream.close(NGHTTP2_INTERNAL_ERROR)
    this.#gone()
  }

  // --------------------------------------------------------------------------------------- the request

  #route(bytes: Buffer): void {
    const { context, peer, servername } = this.#connection
    reader.reset()
    const result = reader.read(bytes, 0, bytes.length)
    if (result !== COMPLETE) {
      this.#refuse(result === 0 ? 400 : result, `the request is not HTTP: ${reader.reason}`)
      return
    }
    const request = requestHead
    if (!request.read(reader, bytes, 0)) {
      this.#refuse(request.problem, `the request is not HTTP: ${request.reason}`)
      return
    }
    if (this.#received && request.framing > 0) {
      this.#refuse(400, "the request is not HTTP: it ends before its body")
      return
    }
    const app = admit(context, request.host, servername)
    if (!isAdmitted(app)) {
      this.#answerOurselves(app)
      return
    }
    const chunked = request.framing === CHUNKED
    if (request.framing >= 0) this.#left = request.framing
    this.#exchange = new Exchange(context.routes, app, this, {
      head: request.forwarded(reader, bytes, 0, peer),
      isHead: request.isHead,
      idempotent: request.idempotent,
      upgrade: request.upgrade,
      chunked,
      bodyBytes: request.framing
    })
    this.#exchange.start()
    if (this.#received || this.#webSocketKey !== undefined) this.#exchange.requestEnd("")
    this.#exchange.flushRequest()
    if (!this.#received) this.#readBody()
  }

  #readBody(): void {
    const stream = this.#stream
    const guarded = (step: () => void) => this.#connection.guarded(this, step)
    stream.on("data", (bytes: Buffer) => guarded(() => this.#bodyBytes(bytes)))
    stream.on("trailers", (_headers, _flags, list: HeaderList) =>
      guarded(() => {
        const trailers = trailersOf(list)
        if (trailers === undefined) this.#breakOff(NGHTTP2_PROTOCOL_ERROR)
        else this.#requestTrailers = trailers
      })
    )
    // a stream that is reset ends too, and only after that is it known to be reset
    stream.on("end", () => setImmediate(() => guarded(() => this.#ended())))
    // a WebSocket is read once there is one
    if (this.#webSocketKey !== undefined) stream.pause()
  }

  #bodyBytes(bytes: Buffer): void {
    const exchange = this.#exchange
    if (exchange === undefined) return
    if (this.#tunnel) {
      this.#touch()
      if (!exchange.toApp(bytes, 0, bytes.length)) this.#stream.pause()
      return
    }
    if (this.#left !== LENGTH_UNSAID) {
      this.#left -= bytes.length
      if (this.#left < 0) {
        this.#breakOff(NGHTTP2_PROTOCOL_ERROR)
        return
      }
    }
    exchange.requestBytes(bytes, 0, bytes.length)
    if (!exchange.flushRequest()) this.#stream.pause()
  }

  #ended(): void {
    const exchange = this.#exchange
    const stream = this.#stream
    if (stream.destroyed || stream.aborted || stream.rstCode !== NGHTTP2_NO_ERROR) {
      this.#gone()
      return
    }
    this.#received = true
    if (exchange === undefined) return
    if (this.#tunnel) exchange.callerEnded()
    else if (this.#webSocketKey !== undefined) this.#breakOff(NGHTTP2_PROTOCOL_ERROR)
    else if (this.#left > 0) this.#breakOff(NGHTTP2_PROTOCOL_ERROR)
    else {
      exchange.requestEnd(this.#requestTrailers)
      exchange.flushRequest()
    }
  }

  resumeRequest(): void {
    this.#stream.resume()
  }

  released(): void {}

  // ---------------------------------------------------------------------------------------- the answer

  interim(head: string): void {
    // an app may send any number of them, and the caller need not read any
    if (this.#closed || ++this.#interim > MAX_INTERIM_ANSWERS) return
    this.#stream.additionalHeaders({ ":status": statusOf(head), ...asObject(fieldsOf(head)) })
  }

  answer(head: string, framing: Framing): void {
    if (this.#closed) return
    const status = statusOf(head)
    if (status > MAX_STATUS) {
      this.#takeBack("the answer of the app has a status that HTTP/2 does not know")
    } else if (this.#webSocketKey !== undefined && status < 300) {
      this.#takeBack("the app does not speak WebSocket")
    } else {
      // the length says too when the end is missing
      this.#respond(status, fieldsOf(head), framing === "chunked" || framing === "until-close")
    }
  }

  answerBytes(bytes: Buffer, start: number, end: number): void {
    // an answer with a status that has no body has ended by then
    if (!this.#closed && !this.#stream.writableEnded) this.#stream.write(keepable(bytes, start, end))
  }

  answerEnd(trailers: string): void {
    this.#answerTrailers = trailers
    this.#exchange = undefined
    this.#end()
  }

  flush(): boolean {
    return this.#closed || !this.#stream.writableNeedDrain
  }

  refuse(refused: Refused): void {
    this.#exchange = undefined
    this.#answerOurselves(refused)
  }

  truncate(): void {
    this.#exchange = undefined
    if (!this.#closed) this.#stream.close(this.#tunnel ? NGHTTP2_CONNECT_ERROR : NGHTTP2_INTERNAL_ERROR)
  }

  /**
   * `openEnded`: only the end of the stream says where the answer ends. Node ends a stream before it resets it, so that
   * an answer which breaks off would look complete, unless its trailers are still to come.
   */
  #respond(status: number, fields: ReadonlyArray<string>, openEnded: boolean): void {
    const stream = this.#stream
    stream.on("drain", () => this.#connection.guarded(this, () => this.#exchange?.callerKeepsUp()))
    if (openEnded) {
      stream.once("wantTrailers", () => this.#connection.guarded(this, () => this.#sendTrailers()))
    }
    stream.respond([":status", String(status), ...fields], { waitForTrailers: openEnded })
    this.#awaitsTrailers = openEnded
  }

  /** The answer is complete. A caller that still sends is asked to stop. */
  #end(): void {
    const stream = this.#stream
    if (this.#closed) return
    stream.end()
    if (!this.#received && !this.#awaitsTrailers) stream.close(NGHTTP2_NO_ERROR)
  }

  #sendTrailers(): void {
    const stream = this.#stream
    if (this.#closed) return
    stream.sendTrailers(asObject(fieldsIn(this.#answerTrailers)))
    // the trailers are sent in the next turn
    if (!this.#received) setImmediate(() => this.#closed || stream.close(NGHTTP2_NO_ERROR))
  }

  /** An answer that cannot be passed on becomes one of ours. */
  #takeBack(reason: string): void {
    this.#exchange?.callerGone(false)
    this.refuse({ status: 502, reason })
  }

  #refuse(status: number, reason: string): void {
    this.#connection.context.routes.outcomes.refused++
    this.#answerOurselves({ status, reason })
  }

  #answerOurselves(refused: Refused): void {
    if (this.#closed) return
    const body = ownBody(refused)
    this.#respond(refused.status, ownFields(refused, body).flat(), false)
    if (!this.#isHead) this.#stream.write(body)
    this.#end()
  }

  // ---------------------------------------------------------------------------------------- the tunnel

  switched(head: string): void {
    if (this.#closed) return
    const fields = fieldsOf(head)
    const accept = fields[fields.indexOf("sec-websocket-accept") + 1]
    if (this.#webSocketKey === undefined || accept !== acceptFor(this.#webSocketKey)) {
      this.#takeBack("the app does not speak WebSocket")
      return
    }
    fields.splice(fields.indexOf("sec-websocket-accept"), 2)
    this.#tunnel = true
    this.#respond(200, fields, true)
    this.#stream.resume()
  }

  tunnelBytes(bytes: Buffer, start: number, end: number): void {
    this.answerBytes(bytes, start, end)
  }

  tunnelEnded(): void {
    if (!this.#closed) this.#stream.end()
    this.#connection.context.sweep.add(this)
    this.#touch()
  }

  /** The app has ended the tunnel, and the caller keeps its side open without saying anything. */
  expired(): void {
    this.#breakOff(NGHTTP2_CONNECT_ERROR)
  }

  #touch(): void {
    const { sweep, timeouts } = this.#connection.context
    if (this.#stream.writableEnded) this.deadline = sweep.after(timeouts.halfClosed)
  }

  // ------------------------------------------------------------------------------------------- the end

  get #closed(): boolean {
    return this.#stream.destroyed || this.#stream.closed
  }

  #breakOff(code: number): void {
    if (!this.#closed) this.#stream.close(code)
    this.#gone()
  }

  #gone(): void {
    const exchange = this.#exchange
    this.#exchange = undefined
    this.#connection.context.sweep.remove(this)
    const cleanly = this.#received && !this.#stream.aborted && this.#stream.rstCode === NGHTTP2_NO_ERROR
    exchange?.callerGone(cleanly)
    this.#connection.ended(this)
  }
}

/** The largest status that HTTP/2 is spoken with here. */
const MAX_STATUS = 599

/** The trailers that may be passed on, as lines; undefined when what came are no trailers. */
const trailersOf = (list: HeaderList): string | undefined => {
  let text = ""
  for (let i = 0; i < list.length; i += 2) text += `${list[i]}: ${list[i + 1]}\r\n`
  const section = Buffer.from(`${text}\r\n`, "latin1")
  const reader = new HeadReader("trailer")
  const whole = reader.read(section, 0, section.length) === COMPLETE && reader.length === section.length
  return whole && reader.fieldCount * 2 === list.length ? trailerLines(reader, section) : undefined
}
