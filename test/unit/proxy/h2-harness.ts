/** Callers that speak HTTP/2: Node's own, and one that sends whatever frames a test makes up. */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type ClientSessionOptions,
  connect as http2Connect,
  type IncomingHttpHeaders,
  type IncomingHttpStatusHeader,
  type OutgoingHttpHeaders
} from "node:http2"
import { connect as tlsConnect } from "node:tls"
import { Effect, type Scope } from "effect"
import type { Talk } from "./harness.ts"
import { dialSecure, secureOptions } from "./tls-harness.ts"

/** A connection of Node's client. */
export const session = (
  port: number,
  options: ClientSessionOptions = {},
  servername = "app.test"
): Effect.Effect<ClientHttp2Session, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.callback<ClientHttp2Session>((resume) => {
      const client = http2Connect("https://app.test", {
        ...options,
        createConnection: () => tlsConnect({ ...secureOptions(port, { servername }), ALPNProtocols: ["h2"] })
      })
      client.on("error", () => undefined)
      client.once("remoteSettings", () => resume(Effect.succeed(client)))
    }),
    (client) => Effect.sync(() => client.destroy())
  )

/** One request of Node's client, with everything that came to it. */
export class Ask {
  readonly stream: ClientHttp2Stream
  headers: (IncomingHttpHeaders & IncomingHttpStatusHeader) | undefined
  trailers: IncomingHttpHeaders | undefined
  readonly interim: Array<IncomingHttpHeaders & IncomingHttpStatusHeader> = []
  body = ""
  bytesSeen = 0
  ended = false
  closed = false
  errorCode = ""
  keeps = true
  readonly #watchers = new Set<() => void>()

  constructor(client: ClientHttp2Session, headers: OutgoingHttpHeaders, endStream: boolean) {
    this.stream = client.request({ ":authority": "app.test", ...headers }, { endStream })
    const changed = () => {
      for (const watcher of [...this.#watchers]) watcher()
    }
    const on = (event: string, take: (value: never) => void) =>
      this.stream.on(event, (...values: ReadonlyArray<unknown>) => {
        take(values[0] as never)
        changed()
      })
    on("response", (value) => {
      this.headers = value
    })
    on("headers", (value) => this.interim.push(value))
    on("trailers", (value) => {
      this.trailers = value
    })
    on("data", (bytes: Buffer) => {
      this.bytesSeen += bytes.length
      if (this.keeps) this.body += bytes.toString("latin1")
    })
    on("end", () => {
      this.ended = true
    })
    on("close", () => {
      this.closed = true
    })
    on("error", (error: NodeJS.ErrnoException) => {
      this.errorCode = error.code ?? "unknown"
    })
  }

  get status(): number | undefined {
    return this.headers?.[":status"]
  }

  /** Waits for the event after which the condition holds. */
  until(condition: (ask: Ask) => boolean): Effect.Effect<Ask> {
    return Effect.callback<Ask>((resume) => {
      const check = () => {
        if (!condition(this)) return
        this.#watchers.delete(check)
        resume(Effect.succeed(this))
      }
      this.#watchers.add(check)
      check()
      return Effect.sync(() => this.#watchers.delete(check))
    }).pipe(
      Effect.timeoutOrElse({
        duration: "40 seconds",
        orElse: () =>
          Effect.die(
            new Error(
              `waited in vain for ${condition}; status ${this.status}, body ${this.body.slice(0, 500)}`
            )
          )
      })
    )
  }

  /** Waits until nothing more can come. */
  readonly whole = Effect.suspend(() => this.until(({ closed }) => closed))
}

/** Begins a request. A body, if it has one, is the test's to send. */
export const ask = (client: ClientHttp2Session, headers: OutgoingHttpHeaders = {}, endStream = true): Ask =>
  new Ask(client, { ":path": "/", ...headers }, endStream)

// ------------------------------------------------------------------------------------------- raw frames

export const DATA = 0
export const HEADERS = 1
export const PRIORITY = 2
export const RST_STREAM = 3
export const SETTINGS = 4
export const PING = 6
export const GOAWAY = 7
export const WINDOW_UPDATE = 8
export const CONTINUATION = 9
export const END_STREAM = 1
export const END_HEADERS = 4

export const frame = (type: number, flags: number, stream: number, payload: Uint8Array = Buffer.alloc(0)) => {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head.writeUInt8(type, 3)
  head.writeUInt8(flags, 4)
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

const MAX_PREFIX = 127

const prefixed = (text: string): Buffer => {
  const bytes = Buffer.from(text, "latin1")
  const length: Array<number> = []
  let rest = bytes.length
  if (rest < MAX_PREFIX) length.push(rest)
  else {
    length.push(MAX_PREFIX)
    for (rest -= MAX_PREFIX; rest >= 128; rest = Math.floor(rest / 128)) length.push((rest % 128) + 128)
    length.push(rest)
  }
  return Buffer.concat([Buffer.from(length), bytes])
}

/** Fields as they are, without a table and without Huffman's code (RFC 7541 section 6.2.2). */
export const fieldBlock = (fields: ReadonlyArray<readonly [name: string, value: string]>): Buffer =>
  Buffer.concat(fields.flatMap(([name, value]) => [Buffer.from([0]), prefixed(name), prefixed(value)]))

export const pseudo = (method: string, path = "/", authority = "app.test") =>
  [
    [":method", method],
    [":scheme", "https"],
    [":authority", authority],
    [":path", path]
  ] as const

export interface Frame {
  readonly type: number
  readonly flags: number
  readonly stream: number
  readonly payload: Buffer
}

/** The frames that have come, and are not taken. */
export const framesOf = (talk: Talk): Array<Frame> => {
  const bytes = Buffer.from(talk.text, "latin1")
  const frames: Array<Frame> = []
  for (let at = 0; at + 9 <= bytes.length; ) {
    const length = bytes.readUIntBE(at, 3)
    if (at + 9 + length > bytes.length) break
    frames.push({
      type: bytes.readUInt8(at + 3),
      flags: bytes.readUInt8(at + 4),
      stream: bytes.readUInt32BE(at + 5),
      payload: bytes.subarray(at + 9, at + 9 + length)
    })
    at += 9 + length
  }
  return frames
}

/** A connection on which the preface has been sent. */
export const rawSession = (port: number) =>
  Effect.gen(function* () {
    const talk = yield* dialSecure(port, { ALPNProtocols: ["h2"] })
    talk.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    talk.write(frame(SETTINGS, 0, 0))
    return talk
  })

/** The error code of the stream's reset, once it has come. */
export const resetOf = (talk: Talk, stream: number) =>
  talk
    .until(
      () => framesOf(talk).some((frame) => frame.type === RST_STREAM && frame.stream === stream),
      `the reset of stream ${stream}`
    )
    .pipe(
      Effect.map(() =>
        framesOf(talk)
          .find((frame) => frame.type === RST_STREAM && frame.stream === stream)
          ?.payload.readUInt32BE(0)
      )
    )
