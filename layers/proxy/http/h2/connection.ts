/**
 * One connection of a caller that speaks HTTP/2 (RFC 9113): its frames are Node's, each of its requests is an
 * exchange like any other. Outside Effect: this is the data path.
 */
import {
  constants,
  performServerHandshake,
  type ServerHttp2Session,
  type ServerHttp2Stream
} from "node:http2"
import type { TLSSocket } from "node:tls"
import { type ListenerContext, peerOf } from "../caller-connection.ts"
import type { Member } from "../crowd.ts"
import {
  MAX_FIELDS,
  MAX_HEAD_BYTES,
  MAX_STREAMS,
  STREAM_RESET_BURST,
  STREAM_RESETS_PER_SECOND,
  STREAM_WINDOW_BYTES
} from "../limits.ts"
import type { Peer } from "../request.ts"
import { NEVER, type Perishable } from "../sweep.ts"
import type { HeaderList } from "./request.ts"
import { Http2Request } from "./stream.ts"

/** What HTTP/2 counts for each field beside its name and value. */
const FIELD_OVERHEAD = 32
/** Pseudo-header fields, which are none in HTTP/1.1. */
const MAX_PSEUDO_FIELDS = 8
/** Frames that break the rules, and streams that are more than were allowed, before the connection is closed. */
const MAX_INVALID_FRAMES = 100
const MAX_REJECTED_STREAMS = 100
const MAX_SETTINGS_ENTRIES = 32
const MAX_PINGS = 10

const options: Parameters<typeof performServerHandshake>[1] = {
  maxHeaderListPairs: MAX_FIELDS + MAX_PSEUDO_FIELDS,
  maxOutstandingPings: MAX_PINGS,
  maxSessionInvalidFrames: MAX_INVALID_FRAMES,
  maxSessionRejectedStreams: MAX_REJECTED_STREAMS,
  maxSettings: MAX_SETTINGS_ENTRIES,
  streamResetBurst: STREAM_RESET_BURST,
  streamResetRate: STREAM_RESETS_PER_SECOND,
  // apps may send a field twice where it should come once: in HTTP/1.1 that is passed on too
  strictSingleValueFields: false,
  settings: {
    enablePush: false,
    enableConnectProtocol: true,
    initialWindowSize: STREAM_WINDOW_BYTES,
    maxConcurrentStreams: MAX_STREAMS,
    maxHeaderListSize: MAX_HEAD_BYTES + FIELD_OVERHEAD * MAX_FIELDS
  }
}

export class Http2Connection implements Perishable, Member {
  deadline: number
  readonly context: ListenerContext
  readonly peer: Peer
  /** The hostname that TLS was begun with, lowercase. */
  readonly servername: string | undefined
  readonly #session: ServerHttp2Session
  readonly #requests = new Set<Http2Request>()

  constructor(socket: TLSSocket, context: ListenerContext, servername: string | undefined) {
    this.context = context
    this.servername = servername
    this.peer = peerOf(socket, true)
    this.deadline = context.sweep.after(context.timeouts.head)
    this.#session = performServerHandshake(socket, options)
    this.#session.on("stream", (stream, _headers, flags, list) => this.#begin(stream, flags, list))
    // what breaks a connection is its caller's, and closes it
    this.#session.on("error", () => undefined)
    socket.on("error", () => undefined)
    this.#session.on("close", () => this.#closed())
    // a caller that sends no more cannot take an answer either: it could not say how much of it
    socket.on("end", () => this.#session.destroy())
    context.crowd.add(this)
    context.sweep.add(this)
  }

  get isSpare(): boolean {
    return this.#requests.size === 0
  }

  /** Nothing has been asked for a while. */
  expired(): void {
    const { sweep, timeouts } = this.context
    if (this.#session.closed) this.#session.destroy()
    else {
      this.deadline = sweep.after(timeouts.linger)
      this.#session.close()
    }
  }

  /** Closes at once. */
  destroy(): void {
    this.#session.destroy()
  }

  /** Runs a step of a request: a defect in it ends that request and no more. */
  guarded(request: Http2Request, step: () => void): void {
    try {
      step()
    } catch (error) {
      this.context.onDefect(error)
      request.abort()
    }
  }

  /** The request has ended. */
  ended(request: Http2Request): void {
    this.#requests.delete(request)
    const { sweep, timeouts } = this.context
    if (this.#requests.size === 0 && !this.#session.closed) this.deadline = sweep.after(timeouts.keepAlive)
  }

  #begin(stream: ServerHttp2Stream, flags: number, list: HeaderList): void {
    this.deadline = NEVER
    const request = new Http2Request(stream, this)
    this.#requests.add(request)
    this.guarded(request, () => request.begin(list, (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0))
  }

  #closed(): void {
    this.context.crowd.delete(this)
    this.context.sweep.remove(this)
  }
}
