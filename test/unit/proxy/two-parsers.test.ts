import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import fc from "fast-check"
import { appId, dial, eventually, proxyTo, type Talk } from "./harness.ts"

/** What Node's parser saw behind the proxy. */
interface Seen {
  requests: number
  /** What it took for no HTTP, by its codes. */
  readonly errors: Array<string>
}

/** An app on Node's own parser; `lenient` takes what RFC 9112 forbids, as many old programs do. */
const parsingApp = (lenient: boolean) =>
  Effect.gen(function* () {
    const seen: Seen = { requests: 0, errors: [] }
    const server = createServer(
      { insecureHTTPParser: lenient, requireHostHeader: false },
      (request, response) => {
        seen.requests++
        request.on("error", () => undefined)
        request.resume()
        request.on("end", () => response.end("ok"))
      }
    )
    server.on("upgrade", (_request, socket) => {
      seen.requests++
      socket.on("error", () => undefined)
      socket.end("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    })
    server.on("checkContinue", (request, response) => {
      response.writeContinue()
      server.emit("request", request, response)
    })
    server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
      seen.errors.push(error.code ?? error.message)
      // an answer, or what can be sent again would be
      socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    })
    yield* Effect.acquireRelease(
      Effect.callback<void>((resume) => {
        server.listen(0, "127.0.0.1", () => resume(Effect.void))
      }),
      () =>
        Effect.sync(() => {
          server.close()
          server.closeAllConnections()
        })
    )
    return { port: (server.address() as AddressInfo).port, seen }
  })

const host = "Host: app.test\r\n"
const requests = [
  `GET /a HTTP/1.1\r\n${host}\r\n`,
  `POST /b HTTP/1.1\r\n${host}Content-Length: 5\r\n\r\nhello`,
  `POST /c HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`,
  `PUT /d HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nA: b\r\n\r\n`,
  `GET /e HTTP/1.1\r\n${host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n`,
  `POST /f HTTP/1.1\r\n${host}Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc`,
  `GET http://app.test/g HTTP/1.1\r\n${host}\r\n`,
  `HEAD /h HTTP/1.0\r\n${host}Connection: keep-alive\r\n\r\n`
]

/** What has been smuggled with before. */
const tricks = [
  ...["", "\r", "\n", "\0", " ", "\t", "\x0b", ":", ",", ";", "0", "9", "a", "\r\n", "\n\n", "\r\n ", "\xff"],
  ...["Content-Length: 0\r\n", "Content-Length: 5\r\n", "Content-Length: 40\r\n", "content-length:+5\r\n"],
  ...[
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "Transfer-Encoding: x, chunked\r\n"
  ],
  ...["Transfer-Encoding:\x0bchunked\r\n", "Transfer-Encoding: chunked, identity\r\n", "TE: trailers\r\n"],
  ...["Connection: content-length\r\n", "Connection: transfer-encoding, host\r\n", "Connection: close\r\n"],
  ...[
    "Upgrade: h2c\r\n",
    "HTTP/1.0",
    "0\r\n\r\n",
    "GET /x HTTP/1.1\r\nHost: app.test\r\n\r\n",
    "Host: b.test\r\n"
  ]
]

const conversation = fc
  .record({
    parts: fc.array(fc.constantFrom(...requests), { minLength: 1, maxLength: 3 }),
    changes: fc.array(
      fc.record({ at: fc.nat(500), by: fc.constantFrom(...tricks), instead: fc.integer({ min: 0, max: 3 }) }),
      { minLength: 1, maxLength: 3 }
    ),
    cut: fc.nat(500)
  })
  .map(({ parts, changes, cut }) => {
    const text = changes.reduce((before, { at, by, instead }) => {
      // half of the changes at the beginning of a line, where they do the most
      const lines = [...before.matchAll(/^/gmu)].map(({ index }) => index)
      const from = at % 2 === 0 ? (lines[at % lines.length] ?? 0) : at % before.length
      return before.slice(0, from) + by + before.slice(from + instead)
    }, parts.join(""))
    return [text.slice(0, cut), text.slice(cut)]
  })

const converse = (talk: Talk, pieces: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    for (const piece of pieces) {
      talk.write(piece)
      yield* Effect.callback<void>((resume) => {
        setImmediate(() => resume(Effect.void))
      })
    }
    talk.socket.end()
    yield* talk.until(({ ended }) => ended, JSON.stringify(pieces))
  })

/** A connection that broke off, as it does when the request in it turns out to be none. */
const brokenOff = ["HPE_INVALID_EOF_STATE", "ECONNRESET"]
/** A request that is none of this parser's: it knows only some methods, and in targets only ASCII where it is strict. */
const unknown = ["HPE_INVALID_METHOD", "HPE_INVALID_URL"]

describe("what the proxy passes on", () => {
  for (const lenient of [false, true]) {
    it.live(
      `is the same requests to ${lenient ? "a lenient" : "a strict"} parser as to the proxy's own`,
      () =>
        Effect.gen(function* () {
          const { port: guest, seen } = yield* parsingApp(lenient)
          const { port, proxy } = yield* proxyTo(guest)
          const traffic = Effect.map(proxy.traffic, ({ apps }) => apps.get(appId))
          let all = 0
          for (const pieces of fc.sample(conversation, { numRuns: 1_000 })) {
            const before = { routed: (yield* traffic)?.routed ?? 0, seen: seen.requests }
            seen.errors.length = 0
            yield* Effect.scoped(Effect.flatMap(dial(port), (talk) => converse(talk, pieces)))
            yield* eventually(traffic, (app) => app?.open === 0)
            const routed = ((yield* traffic)?.routed ?? 0) - before.routed
            const what = JSON.stringify(pieces.join(""))
            const refused = seen.errors.filter((code) => !brokenOff.includes(code))
            assert.isAtMost(seen.requests - before.seen + refused.length, routed, what)
            assert.deepStrictEqual(
              refused.filter((code) => !unknown.includes(code)),
              [],
              what
            )
            all += seen.requests - before.seen
          }
          assert.isAbove(all, 100)
        })
    )
  }
})
