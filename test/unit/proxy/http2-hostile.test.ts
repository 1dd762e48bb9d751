import { randomBytes } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import fc from "fast-check"
import { toHead } from "../../../layers/proxy/http/h2/request.ts"
import { COMPLETE, HeadReader } from "../../../layers/proxy/http/head.ts"
import { RequestHead } from "../../../layers/proxy/http/request.ts"
import {
  ask,
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  fieldBlock,
  frame,
  framesOf,
  GOAWAY,
  HEADERS,
  PING,
  PRIORITY,
  pseudo,
  RST_STREAM,
  rawSession,
  resetOf,
  SETTINGS,
  session,
  WINDOW_UPDATE
} from "./h2-harness.ts"
import { eventually, openRequests, type Talk } from "./harness.ts"
import { logged, secureProxy } from "./tls-harness.ts"

type Fields = ReadonlyArray<readonly [name: string, value: string]>

const headers = (stream: number, fields: Fields, flags = END_STREAM) =>
  frame(HEADERS, END_HEADERS | flags, stream, fieldBlock(fields))

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/** Waits until the proxy has closed the connection, and gives the code that it named, if it did. */
const goneWith = (talk: Talk) =>
  talk
    .until(({ ended, closed }) => ended || closed, "the end of the connection")
    .pipe(
      Effect.map(() =>
        framesOf(talk)
          .findLast(({ type }) => type === GOAWAY)
          ?.payload.readUInt32BE(4)
      )
    )

describe("a request over HTTP/2 that is nearly one", () => {
  const cases: ReadonlyArray<readonly [what: string, fields: Fields]> = [
    ["a capital in a name", [...pseudo("GET"), ["Abc", "d"]]],
    ["a line in its path", pseudo("GET", "/ HTTP/1.1\r\nx: y\r\n")],
    ["a space in its path", pseudo("GET", "/a b")],
    [
      "no path",
      [
        [":method", "GET"],
        [":scheme", "https"],
        [":authority", "app.test"]
      ]
    ],
    ["an empty path", pseudo("GET", "")],
    ["a URL as its path", pseudo("GET", "http://other.test/")],
    ["a line in its method", pseudo("GET / HTTP/1.1\r\nx: y\r\n\r\nGET")],
    ["a line in its authority", pseudo("GET", "/", "app.test\r\nx: y")],
    ["two authorities", [...pseudo("GET"), [":authority", "other.test"]]],
    ["a Host that names another", [...pseudo("GET"), ["host", "other.test"]]],
    ["two Hosts", [...pseudo("GET"), ["host", "app.test"], ["host", "app.test"]]],
    [
      "another scheme",
      [
        [":method", "GET"],
        [":scheme", "http"],
        [":authority", "app.test"],
        [":path", "/"]
      ]
    ],
    ["a pseudo-header field after others", [[":method", "GET"], ["a", "b"], ...pseudo("GET").slice(1)]],
    ["an unknown pseudo-header field", [...pseudo("GET"), [":x", "y"]]],
    ["one of an answer", [...pseudo("GET"), [":status", "200"]]],
    ["chunks", [...pseudo("POST"), ["transfer-encoding", "chunked"]]],
    ["a connection field", [...pseudo("GET"), ["connection", "x-own"]]],
    ["an upgrade", [...pseudo("GET"), ["upgrade", "websocket"]]],
    ["keep-alive", [...pseudo("GET"), ["keep-alive", "timeout=5"]]],
    ["two lengths", [...pseudo("POST"), ["content-length", "0"], ["content-length", "0"]]],
    ["a length that is none", [...pseudo("POST"), ["content-length", "+1"]]],
    ["a length, but no body", [...pseudo("POST"), ["content-length", "5"]]],
    [
      "CONNECT",
      [
        [":method", "CONNECT"],
        [":authority", "app.test:443"]
      ]
    ],
    ["a protocol without CONNECT", [...pseudo("GET"), [":protocol", "websocket"]]]
  ]
  for (const [what, fields] of cases) {
    it.live(`because of ${what} never reaches the app`, () =>
      Effect.gen(function* () {
        const { app, port, proxy } = yield* secureProxy()
        const talk = yield* rawSession(port)
        talk.write(headers(1, fields))
        talk.write(headers(3, pseudo("GET", "/good")))
        const connection = yield* app
          .connection(0)
          .pipe(Effect.raceFirst(Effect.andThen(goneWith(talk), Effect.undefined)))
        if (connection !== undefined) {
          assert.match(
            yield* connection.head,
            /^GET \/good HTTP\/1\.1\r\nhost: app\.test\r\nx-forwarded-for/u
          )
          const answered = framesOf(talk).filter(({ type, stream }) => stream === 1 && type !== SETTINGS)
          assert.notStrictEqual(answered.length, 0)
        }
        assert.isAtMost(app.connections.length, 1)
        assert.strictEqual((yield* proxy.traffic).outcomes.served, 0)
      })
    )
  }

  // Node's HTTP/2 takes them out, and does not tell
  const leftOut: ReadonlyArray<readonly [what: string, field: readonly [name: string, value: string]]> = [
    ["a line in a value", ["a", "b\r\nx: y"]],
    ["a request in a value", ["a", "b\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: app.test"]],
    ["a LF in a value", ["a", "b\nx: y"]],
    ["a NUL in a value", ["a", "b\0c"]],
    ["a line in a name", ["a: b\r\nc", "d"]],
    ["a colon in a name", ["a:b", "c"]],
    ["a space in a name", ["a b", "c"]],
    ["no name", ["", "d"]]
  ]
  for (const [what, field] of leftOut) {
    it.live(`because of ${what} reaches the app without that field, and without any part of it`, () =>
      Effect.gen(function* () {
        const { app, port } = yield* secureProxy()
        const talk = yield* rawSession(port)
        talk.write(headers(1, [...pseudo("GET"), field]))
        const connection = yield* app.connection(0)
        assert.strictEqual(
          yield* connection.head,
          "GET / HTTP/1.1\r\nhost: app.test\r\nx-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: https\r\nx-forwarded-host: app.test\r\n\r\n"
        )
        assert.strictEqual(connection.text, "")
      })
    )
  }

  it.live("because its body is longer or shorter than it says is broken off", () =>
    Effect.gen(function* () {
      const { app, port, proxy } = yield* secureProxy()
      for (const [index, body] of ["hello and more", "he"].entries()) {
        const talk = yield* rawSession(port)
        talk.write(headers(1, [...pseudo("POST"), ["content-length", "5"]], 0))
        const connection = yield* app.connection(index)
        yield* connection.head
        talk.write(frame(DATA, END_STREAM, 1, Buffer.from(body)))
        yield* connection.until(({ closed, ended }) => closed || ended)
        assert.isBelow(connection.text.length, 6)
        yield* Effect.raceFirst(resetOf(talk, 1), goneWith(talk))
      }
      yield* eventually(openRequests(proxy), (open) => open === 0)
    })
  )

  it.live("in its trailers only reaches the app without them", () =>
    Effect.gen(function* () {
      const { app, port } = yield* secureProxy()
      const talk = yield* rawSession(port)
      talk.write(headers(1, pseudo("POST"), 0))
      const connection = yield* app.connection(0)
      yield* connection.head
      talk.write(headers(1, [["a", "b\r\nc: d"]]))
      assert.strictEqual(yield* connection.through("\r\n\r\n"), "0\r\n\r\n")
    })
  )
})

describe("bodies over HTTP/2 that are reset, in whichever way and at whichever moment", () => {
  it.live("never look complete to the app", () =>
    Effect.gen(function* () {
      const { app, port, proxy } = yield* secureProxy()
      const resets = fc.sample(
        fc.record({
          code: fc.constantFrom(0, 2, 8),
          moment: fc.constantFrom("at once", "in the next turn", "later", "with more of the body"),
          bytes: fc.integer({ min: 1, max: 3000 }),
          delay: fc.nat(30)
        }),
        { numRuns: 600 }
      )
      for (let round = 0; round < 10; round++) {
        const talk = yield* rawSession(port)
        for (const [index, { code, moment, bytes, delay }] of resets
          .slice(round * 60, round * 60 + 60)
          .entries()) {
          const stream = index * 2 + 1
          const body = frame(DATA, 0, stream, Buffer.alloc(bytes, "x"))
          const reset = frame(RST_STREAM, 0, stream, Buffer.from([0, 0, 0, code]))
          talk.write(Buffer.concat([headers(stream, pseudo("POST"), 0), body]))
          if (moment === "at once") talk.write(reset)
          else if (moment === "in the next turn") setImmediate(() => talk.write(reset))
          else if (moment === "later") setTimeout(() => talk.write(reset), delay)
          else setTimeout(() => talk.write(Buffer.concat([body, reset])), delay)
        }
        yield* Effect.sleep(round * 5)
        talk.socket.destroy()
        yield* eventually(openRequests(proxy), (open) => open === 0)
      }
      assert.isAbove(app.connections.length, 100)
      assert.isFalse(app.connections.some(({ text }) => text.endsWith("0\r\n\r\n")))
    })
  )
})

describe("a flood over HTTP/2", () => {
  it.live("of requests that are reset at once ends the connection, and leaves nothing open", () =>
    Effect.gen(function* () {
      const { port, proxy } = yield* secureProxy()
      const talk = yield* rawSession(port)
      const cancel = Buffer.from([0, 0, 0, 8])
      for (let stream = 1; stream < 4000; stream += 2) {
        talk.write(Buffer.concat([headers(stream, pseudo("GET")), frame(RST_STREAM, 0, stream, cancel)]))
      }
      yield* goneWith(talk)
      yield* eventually(openRequests(proxy), (open) => open === 0)
      assert.isBelow((yield* proxy.traffic).outcomes.unreachable, 1)
    })
  )

  // the server resets these streams itself, so that no count of the caller's resets sees them
  for (const [what, rest] of [
    [
      "bodies that are shorter than they say",
      (stream: number) => frame(DATA, END_STREAM, stream, Buffer.from("a"))
    ],
    [
      "windows that are opened by nothing",
      (stream: number) => frame(WINDOW_UPDATE, 0, stream, Buffer.alloc(4))
    ],
    [
      "windows that are opened too far",
      (stream: number) => frame(WINDOW_UPDATE, 0, stream, Buffer.from([0x7f, 0xff, 0xff, 0xff]))
    ],
    ["priorities of a wrong length", (stream: number) => frame(PRIORITY, 0, stream, Buffer.alloc(3))],
    [
      "data behind the end",
      (stream: number) => Buffer.concat([frame(DATA, END_STREAM, stream), frame(DATA, 0, stream)])
    ]
  ] as const) {
    it.live(`of ${what} ends the connection, and leaves nothing open`, () =>
      Effect.gen(function* () {
        const { app, port, proxy } = yield* secureProxy()
        const talk = yield* rawSession(port)
        const fields: Fields = [...pseudo("POST"), ["content-length", "5"]]
        for (let stream = 1; stream < 10_000; stream += 2) {
          talk.write(Buffer.concat([headers(stream, fields, 0), rest(stream)]))
        }
        yield* goneWith(talk)
        yield* eventually(openRequests(proxy), (open) => open === 0)
        assert.isBelow(app.connections.length, 2_000)
      })
    )
  }

  it.live("of WebSockets that end before they are open ends the connection, and leaves nothing open", () =>
    Effect.gen(function* () {
      const { app, port, proxy } = yield* secureProxy()
      const talk = yield* rawSession(port)
      const opening: Fields = [
        [":method", "CONNECT"],
        [":protocol", "websocket"],
        [":scheme", "https"],
        [":authority", "app.test"],
        [":path", "/"]
      ]
      for (let stream = 1; stream < 4_000; stream += 2) {
        talk.write(Buffer.concat([headers(stream, opening, 0), frame(DATA, END_STREAM, stream)]))
      }
      yield* goneWith(talk)
      yield* eventually(openRequests(proxy), (open) => open === 0)
      assert.isBelow(app.connections.length, 1_000)
    })
  )

  it.live("of requests opens no more of them than are allowed at a time", () =>
    Effect.gen(function* () {
      const { port, proxy } = yield* secureProxy()
      const talk = yield* rawSession(port)
      talk.write(frame(SETTINGS, 1, 0))
      for (let stream = 1; stream < 400; stream += 2) talk.write(headers(stream, pseudo("GET")))
      yield* talk.until(
        () => framesOf(talk).some(({ type }) => type === RST_STREAM || type === GOAWAY),
        "a refused stream"
      )
      assert.isAtMost(yield* openRequests(proxy), 128)
    })
  )

  for (const [what, one, count] of [
    ["pings", () => frame(PING, 0, 0, randomBytes(8)), 20_000],
    ["settings", () => frame(SETTINGS, 0, 0, Buffer.from([0, 3, 0, 0, 0, 100])), 20_000],
    ["frames of no use", () => frame(DATA, 0, 1), 20_000]
  ] as const) {
    it.live(`of ${what} whose answers nobody reads ends the connection or stays small`, () =>
      Effect.gen(function* () {
        const { port, client } = yield* Effect.gen(function* () {
          const proxied = yield* secureProxy()
          return { ...proxied, client: yield* session(proxied.port) }
        })
        const talk = yield* rawSession(port)
        talk.write(headers(1, pseudo("POST", "/", "nobody.test"), 0))
        talk.socket.pause()
        const before = process.memoryUsage().rss
        for (let sent = 0; sent < count; sent++) talk.write(one())
        // the proxy serves others meanwhile
        const other = ask(client, { ":authority": "other.test" })
        assert.strictEqual((yield* other.whole).status, 421)
        assert.isBelow(process.memoryUsage().rss - before, 200_000_000)
      })
    )
  }

  it.live("of field blocks that never end does not grow, and ends the connection", () =>
    Effect.gen(function* () {
      const { port } = yield* secureProxy()
      const talk = yield* rawSession(port)
      talk.write(frame(HEADERS, 0, 1, fieldBlock(pseudo("GET"))))
      const more = fieldBlock([["a", "x".repeat(10_000)]])
      for (let sent = 0; sent < 200; sent++) talk.write(frame(CONTINUATION, 0, 1, more))
      yield* goneWith(talk)
    })
  )

  it.live("of fields is refused", () =>
    Effect.gen(function* () {
      const { app, port } = yield* secureProxy()
      const talk = yield* rawSession(port)
      const many = Array.from({ length: 300 }, (_, index) => [`a${index}`, "b"] as const)
      talk.write(headers(1, [...pseudo("GET"), ...many]))
      yield* talk.until(
        () =>
          framesOf(talk).some(({ type, stream }) => type === GOAWAY || (stream === 1 && type !== SETTINGS)),
        "a refusal"
      )
      assert.strictEqual(app.connections.length, 0)
    })
  )
})

describe("bytes that are nearly HTTP/2", () => {
  it.live("end in an answer or a closed connection, and leave nothing open", () =>
    Effect.gen(function* () {
      const { lines, layer } = logged()
      const { app, port, proxy } = yield* secureProxy({
        timeouts: { halfClosed: 200, linger: 100, sweep: 20 }
      }).pipe(Effect.provide(layer))
      const good = [
        headers(1, pseudo("GET")),
        headers(1, [...pseudo("POST"), ["content-length", "5"]], 0),
        frame(DATA, END_STREAM, 1, Buffer.from("hello")),
        headers(
          3,
          [
            [":method", "CONNECT"],
            [":protocol", "websocket"],
            [":scheme", "https"],
            [":authority", "app.test"],
            [":path", "/"]
          ],
          0
        ),
        frame(PING, 0, 0, Buffer.alloc(8)),
        frame(RST_STREAM, 0, 1, Buffer.alloc(4)),
        frame(CONTINUATION, END_HEADERS, 1, Buffer.alloc(1))
      ]
      const cases = fc.sample(
        fc.record({
          frames: fc.array(fc.constantFrom(...good), { minLength: 1, maxLength: 5 }),
          changes: fc.array(fc.tuple(fc.nat(300), fc.nat(255)), { maxLength: 3 })
        }),
        { numRuns: 150 }
      )
      let answered = 0
      const answer = setInterval(() => {
        for (; answered < app.connections.length; answered++) app.connections[answered]?.socket.end(ok)
      }, 2)
      yield* Effect.addFinalizer(() => Effect.sync(() => clearInterval(answer)))
      for (const { frames, changes } of cases) {
        const bytes = Buffer.concat(frames)
        for (const [at, value] of changes) bytes.writeUInt8(value, at % bytes.length)
        const talk = yield* rawSession(port)
        talk.write(bytes)
        talk.socket.end()
        yield* talk.until(({ ended, closed }) => ended || closed, bytes.toString("hex"))
        talk.socket.destroy()
      }
      yield* eventually(openRequests(proxy), (open) => open === 0)
      assert.deepStrictEqual(lines, [])
    }).pipe(Effect.scoped)
  )

  const name = fc.oneof(
    fc.constantFrom(
      ":method",
      ":path",
      ":scheme",
      ":authority",
      ":protocol",
      "host",
      "cookie",
      "content-length",
      "te"
    ),
    fc.string({ unit: fc.constantFrom("a", "A", ":", " ", "\r", "\n", "-", "\0"), maxLength: 4 })
  )
  const value = fc.oneof(
    fc.constantFrom("GET", "POST", "CONNECT", "/", "https", "app.test", "5", "websocket", "OPTIONS", "*"),
    fc.string({ unit: fc.constantFrom("a", "/", " ", "\r", "\n", "\0", ":", "\xff"), maxLength: 6 })
  )

  it("become one head of HTTP/1.1 that is read as the fields that they were, or nothing", () => {
    const base = pseudo("GET").flat()
    fc.assert(
      fc.property(
        fc.array(fc.tuple(name, value), { maxLength: 5 }),
        fc.boolean(),
        fc.boolean(),
        (more, whole, ends) => {
          const list = [...(whole ? base : []), ...more.flat()]
          const head = toHead(list, ends, () => "a2V5a2V5a2V5a2V5a2V5aw==")
          if ("status" in head) return
          const bytes = Buffer.from(head.text, "latin1")
          const reader = new HeadReader("request")
          if (reader.read(bytes, 0, bytes.length) !== COMPLETE) return
          assert.strictEqual(reader.length, bytes.length)
          const request = new RequestHead()
          if (!request.read(reader, bytes, 0)) return
          const fields = list.filter((_, at) => at % 2 === 0 && !["cookie", "host"].includes(list[at] ?? ""))
          const kept = fields.filter((field) => !field.startsWith(":")).length
          const cookie = list.some((field, at) => at % 2 === 0 && field === "cookie") ? 1 : 0
          const own = head.isWebSocket ? 3 : request.framing === -2 ? 1 : 0
          assert.strictEqual(reader.fieldCount, 1 + kept + cookie + own)
          assert.strictEqual(request.upgrade, head.isWebSocket && request.framing === -1)
        }
      ),
      { numRuns: 5000 }
    )
  })
})
