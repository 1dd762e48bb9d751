import type { AddressInfo } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import fc from "fast-check"
import { defaultTimeouts } from "../../../layers/proxy/http/limits.ts"
import { ProxyServer } from "../../../layers/proxy/http/server.ts"
import { appId, dial, eventually, listenRaw, type Talk } from "./harness.ts"

/** A proxy whose own defects are seen, in front of an app that says what `answers` holds at that moment. */
const watched = (answers: { next: ReadonlyArray<string> }) =>
  Effect.gen(function* () {
    const app = yield* listenRaw((talk) => {
      talk.socket.once("data", () => {
        for (const piece of answers.next) talk.write(piece)
        talk.socket.end()
      })
    })
    const defects: Array<unknown> = []
    const proxy = yield* Effect.acquireRelease(
      Effect.sync(
        () =>
          new ProxyServer({
            timeouts: { ...defaultTimeouts, sweep: 20, linger: 100, halfClosed: 500 },
            onDefect: (error) => defects.push(error),
            runWake: (wake) => defects.push(wake),
            callers: 1_000,
            onFull: () => defects.push("too many callers")
          })
      ),
      (server) => Effect.sync(() => server.close())
    )
    const listener = yield* Effect.acquireRelease(
      Effect.sync(() => proxy.hostnameListener().listen(0, "127.0.0.1")),
      (listener) => Effect.sync(() => listener.close())
    )
    yield* eventually(
      Effect.sync(() => listener.listening),
      (listening) => listening
    )
    proxy.setRoute({
      appId,
      hostnames: ["app.test"],
      target: { kind: "up", host: "127.0.0.1", port: app.port }
    })
    const open = Effect.sync(() => proxy.traffic().apps.get(appId)?.open)
    return { port: (listener.address() as AddressInfo).port, defects, open }
  })

const valid = [
  "GET /a HTTP/1.1\r\nHost: app.test\r\n\r\n",
  "POST /b HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\n\r\nhello",
  "PUT /c HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
  "GET /d HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
  "HEAD /e HTTP/1.0\r\nHost: app.test\r\n\r\n"
]
const validAnswers = [
  "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
  "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
  "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nbytes",
  "HTTP/1.0 200 OK\r\n\r\nuntil the end",
  "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
]

/** Something valid with some of its bytes changed, left out or doubled, in pieces. */
const mutated = (sources: ReadonlyArray<string>) =>
  fc
    .record({
      parts: fc.array(fc.constantFrom(...sources), { minLength: 1, maxLength: 3 }),
      changes: fc.array(
        fc.tuple(fc.nat(400), fc.constantFrom("", "\r", "\n", "\0", " ", ":", "a", "9", "\r\n")),
        { maxLength: 3 }
      ),
      cuts: fc.array(fc.nat(400), { maxLength: 4 })
    })
    .map(({ parts, changes, cuts }) => {
      const text = changes.reduce(
        (text, [at, by]) => text.slice(0, at % text.length) + by + text.slice((at % text.length) + 1),
        parts.join("")
      )
      const ends = [...cuts.filter((cut) => cut < text.length), text.length].sort((a, b) => a - b)
      return ends.map((end, index) => text.slice(ends[index - 1] ?? 0, end))
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
    yield* talk.rest
  })

describe("bytes that are nearly HTTP, from callers and apps", () => {
  it.live("end in an answer or a closed connection, never in a defect, and leave nothing open", () =>
    Effect.gen(function* () {
      const answers: { next: ReadonlyArray<string> } = { next: [] }
      const { port, defects, open } = yield* watched(answers)
      const cases = fc.sample(fc.tuple(mutated(valid), mutated(validAnswers)), {
        numRuns: 400
      })
      for (const [request, answer] of cases) {
        answers.next = answer
        yield* Effect.scoped(dial(port).pipe(Effect.flatMap((talk) => converse(talk, request)))).pipe(
          Effect.timeoutOrElse({
            duration: "20 seconds",
            orElse: () => Effect.die(new Error(`it hangs on ${JSON.stringify([request, answer])}`))
          })
        )
        assert.deepStrictEqual(defects, [], JSON.stringify([request, answer]))
      }
      yield* eventually(open, (count) => count === 0)
    })
  )
})
