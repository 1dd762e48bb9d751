import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { dial, listenRaw, proxyTo } from "./harness.ts"

/** An app that takes each request head as it comes and answers with how many it has had. */
const countingApp = listenRaw((talk) => {
  let heads = 0
  talk.socket.on("data", () => {
    const total = talk.text.split("\r\n\r\n").length - 1
    for (; heads < total; heads++) talk.write(`HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n#${heads}`)
  })
})

interface Refusal {
  readonly what: string
  readonly request: string
  readonly status: number
}

const host = "Host: app.test\r\n"
const inside = "GET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n"
const chunked = "Transfer-Encoding: chunked\r\n"

const post = (fields: string, body: string) => `POST / HTTP/1.1\r\n${host}${fields}\r\n${body}`

/** What may not be forwarded, and the status that RFC 9110 and RFC 9112 give it. */
const refusals: ReadonlyArray<Refusal> = [
  {
    what: "a length and chunks",
    request: post(`Content-Length: 6\r\n${chunked}`, `0\r\n\r\n${inside}`),
    status: 400
  },
  {
    what: "chunks and a length",
    request: post(`${chunked}Content-Length: 6\r\n`, `0\r\n\r\n${inside}`),
    status: 400
  },
  {
    what: "two different lengths",
    request: post("Content-Length: 6\r\nContent-Length: 5\r\n", `abcde${inside}`),
    status: 400
  },
  {
    what: "the same length twice",
    request: post("Content-Length: 5\r\nContent-Length: 5\r\n", "abcde"),
    status: 400
  },
  { what: "a list of lengths", request: post("Content-Length: 5, 5\r\n", "abcde"), status: 400 },
  { what: "a length with a sign", request: post("Content-Length: +5\r\n", "abcde"), status: 400 },
  { what: "a negative length", request: post("Content-Length: -1\r\n", ""), status: 400 },
  { what: "a length in hexadecimal", request: post("Content-Length: 0x5\r\n", "abcde"), status: 400 },
  { what: "an empty length", request: post("Content-Length:\r\n", ""), status: 400 },
  {
    what: "a length that does not fit",
    request: post("Content-Length: 99999999999999999999\r\n", ""),
    status: 400
  },
  { what: "a length with a blank inside", request: post("Content-Length: 5 5\r\n", "abcde"), status: 400 },
  {
    what: "a length with a space before the colon",
    request: post("Content-Length : 5\r\n", "abcde"),
    status: 400
  },
  {
    what: "a coding with a space before the colon",
    request: post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
    status: 400
  },
  {
    what: "a coding behind a vertical tab",
    request: post("Transfer-Encoding:\u000bchunked\r\n", "0\r\n\r\n"),
    status: 400
  },
  { what: "a coding in quotes", request: post('Transfer-Encoding: "chunked"\r\n', "0\r\n\r\n"), status: 400 },
  {
    what: "a coding that only contains chunked",
    request: post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
    status: 400
  },
  {
    what: "chunks twice in one field",
    request: post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
    status: 400
  },
  { what: "chunks twice in two fields", request: post(`${chunked}${chunked}`, "0\r\n\r\n"), status: 400 },
  {
    what: "chunks before another coding",
    request: post("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"),
    status: 400
  },
  {
    what: "chunks and identity",
    request: post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"),
    status: 400
  },
  { what: "an empty coding", request: post("Transfer-Encoding:\r\n", ""), status: 400 },
  { what: "a coding that is not chunked", request: post("Transfer-Encoding: gzip\r\n", ""), status: 400 },
  {
    what: "a coding beneath the chunks",
    request: post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
    status: 501
  },
  { what: "chunks in HTTP/1.0", request: `POST / HTTP/1.0\r\n${host}${chunked}\r\n0\r\n\r\n`, status: 400 },
  { what: "a folded coding", request: post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), status: 400 },
  { what: "a fold that hides a field", request: post(`X: y\r\n ${chunked}`, "0\r\n\r\n"), status: 400 },
  { what: "lines that end in LF", request: `GET / HTTP/1.1\nHost: app.test\n\n${inside}`, status: 400 },
  {
    what: "one line that ends in LF",
    request: `GET / HTTP/1.1\r\nHost: app.test\nX: y\r\n\r\n`,
    status: 400
  },
  {
    what: "a CR in a value",
    request: `GET / HTTP/1.1\r\n${host}X: a\rTransfer-Encoding: chunked\r\n\r\n`,
    status: 400
  },
  { what: "a NUL in a value", request: `GET / HTTP/1.1\r\n${host}X: a\0b\r\n\r\n`, status: 400 },
  { what: "a NUL in a name", request: `GET / HTTP/1.1\r\n${host}X\0: a\r\n\r\n`, status: 400 },
  { what: "two Host fields", request: `GET / HTTP/1.1\r\n${host}Host: other.test\r\n\r\n`, status: 400 },
  { what: "the same Host field twice", request: `GET / HTTP/1.1\r\n${host}${host}\r\n`, status: 400 },
  { what: "no Host field", request: "GET / HTTP/1.1\r\n\r\n", status: 400 },
  { what: "no Host field in HTTP/1.0", request: "GET / HTTP/1.0\r\n\r\n", status: 400 },
  { what: "an empty Host field", request: "GET / HTTP/1.1\r\nHost:\r\n\r\n", status: 400 },
  { what: "a Host field with a path", request: "GET / HTTP/1.1\r\nHost: app.test/x\r\n\r\n", status: 400 },
  {
    what: "a Host field with a name before it",
    request: "GET / HTTP/1.1\r\nHost: me@app.test\r\n\r\n",
    status: 400
  },
  { what: "a list of hosts", request: "GET / HTTP/1.1\r\nHost: app.test, other.test\r\n\r\n", status: 400 },
  {
    what: "a Host field with a wrong port",
    request: "GET / HTTP/1.1\r\nHost: app.test:70000\r\n\r\n",
    status: 400
  },
  {
    what: "a Host field with letters for a port",
    request: "GET / HTTP/1.1\r\nHost: app.test:80x\r\n\r\n",
    status: 400
  },
  { what: "a URL of another host", request: `GET http://other.test/ HTTP/1.1\r\n${host}\r\n`, status: 400 },
  { what: "a URL of another port", request: `GET http://app.test:81/ HTTP/1.1\r\n${host}\r\n`, status: 400 },
  {
    what: "a URL with a name before the host",
    request: `GET http://app.test@other.test/ HTTP/1.1\r\n${host}\r\n`,
    status: 400
  },
  { what: "a URL without a Host field", request: "GET http://app.test/ HTTP/1.1\r\n\r\n", status: 400 },
  { what: "a URL of another scheme", request: `GET ftp://app.test/ HTTP/1.1\r\n${host}\r\n`, status: 400 },
  { what: "a target that is no path", request: `GET app.test HTTP/1.1\r\n${host}\r\n`, status: 400 },
  { what: "an asterisk for anything but OPTIONS", request: `GET * HTTP/1.1\r\n${host}\r\n`, status: 400 },
  { what: "CONNECT", request: "CONNECT app.test:80 HTTP/1.1\r\nHost: app.test:80\r\n\r\n", status: 400 },
  { what: "a target with a space", request: `GET /a b HTTP/1.1\r\n${host}\r\n`, status: 400 },
  { what: "a target with a control character", request: `GET /\u0001 HTTP/1.1\r\n${host}\r\n`, status: 400 },
  { what: "HTTP/0.9", request: "GET /\r\n", status: 400 },
  { what: "HTTP/2 without TLS", request: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status: 505 },
  {
    what: "a head of more than 16 KiB",
    request: `GET / HTTP/1.1\r\n${host}X: ${"y".repeat(16_384)}\r\n\r\n`,
    status: 431
  },
  {
    what: "a flood of fields",
    request: `GET / HTTP/1.1\r\n${host}${"X: y\r\n".repeat(300)}\r\n`,
    status: 431
  }
]

/** Bodies that break off or break the rules after their head has gone to the app: it gets no second request of them. */
const brokenBodies: ReadonlyArray<readonly [what: string, body: string]> = [
  ["a chunk size in hexadecimal notation", `0x5\r\nhello\r\n0\r\n\r\n${inside}`],
  ["a chunk longer than its size", `3\r\nhello\r\n0\r\n\r\n${inside}`],
  ["a chunk size that ends in LF", `5\nhello\r\n0\r\n\r\n${inside}`],
  ["a chunk extension with a bare LF", `5;a\nhello\r\n0\r\n\r\n${inside}`],
  ["a chunk size that does not fit", `fffffffffffffffff\r\n${inside}`],
  ["a trailer with a space before the colon", `0\r\nA : b\r\n\r\n${inside}`]
]

describe("a request that could be read in two ways", () => {
  for (const { what, request, status } of refusals) {
    it.live(`is answered with ${status} and reaches no app: ${what}`, () =>
      Effect.gen(function* () {
        const app = yield* countingApp
        const { port, proxy } = yield* proxyTo(app.port)
        const caller = yield* dial(port)
        caller.write(request)
        const answer = yield* caller.rest
        assert.match(answer, new RegExp(`^HTTP/1\\.1 ${status} `, "u"))
        assert.include(answer, "content-type: text/plain; charset=utf-8\r\n")
        assert.include(answer, "cache-control: no-store\r\n")
        assert.include(answer, "connection: close\r\n")
        assert.lengthOf(answer.match(/HTTP\/1\.1 \d/gu) ?? [], 1)
        assert.lengthOf(app.connections, 0)
        assert.strictEqual((yield* proxy.traffic).outcomes.refused, 1)
      })
    )
  }

  for (const [what, body] of brokenBodies) {
    it.live(`ends its connection to the app, and what follows is no request: ${what}`, () =>
      Effect.gen(function* () {
        const app = yield* listenRaw()
        const { port } = yield* proxyTo(app.port)
        const caller = yield* dial(port)
        caller.write(post(chunked, body))
        assert.match(yield* caller.rest, /^HTTP\/1\.1 400 /u)
        for (const connection of app.connections) {
          yield* connection.until((talk) => talk.ended)
          assert.notInclude(connection.text, "smuggled")
        }
      })
    )
  }

  it.live("is refused in the same way when it follows a good one on the same connection", () =>
    Effect.gen(function* () {
      const app = yield* countingApp
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      caller.write(
        `GET / HTTP/1.1\r\n${host}\r\nGET / HTTP/1.1\r\n${host}Content-Length: 1\r\n${chunked}\r\n0\r\n\r\n`
      )
      const answers = yield* caller.rest
      assert.deepStrictEqual(answers.match(/HTTP\/1\.1 \d+/gu), ["HTTP/1.1 200", "HTTP/1.1 400"])
      assert.lengthOf(app.connections, 1)
    })
  )
})

/** What a hostile app may not make a caller believe. */
const answers: ReadonlyArray<readonly [what: string, answer: string]> = [
  [
    "a length and chunks",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
  ],
  ["two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"],
  ["a coding that is not chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx"],
  ["lines that end in LF", "HTTP/1.1 200 OK\nContent-Length: 0\n\n"],
  ["a folded field", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n"],
  ["a space before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n"],
  ["a NUL", "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n"],
  ["HTTP/2", "HTTP/2.0 200 OK\r\n\r\n"],
  ["no HTTP", "SSH-2.0-OpenSSH\r\n"],
  ["a status of two digits", "HTTP/1.1 20 OK\r\n\r\n"],
  ["a status of four digits", "HTTP/1.1 2000 OK\r\n\r\n"],
  ["a switch of protocols that nobody asked for", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"],
  ["a head of more than 16 KiB", `HTTP/1.1 200 OK\r\nA: ${"b".repeat(17_000)}\r\n\r\n`]
]

describe("an answer that could be read in two ways", () => {
  for (const [what, answer] of answers) {
    it.live(`becomes 502: ${what}`, () =>
      Effect.gen(function* () {
        const app = yield* listenRaw((talk) => talk.socket.once("data", () => talk.write(answer)))
        const { port, proxy } = yield* proxyTo(app.port)
        const caller = yield* dial(port)
        caller.write(`GET / HTTP/1.1\r\n${host}\r\n`)
        assert.match(yield* caller.rest, /^HTTP\/1\.1 502 /u)
        assert.strictEqual((yield* proxy.traffic).outcomes.unreachable, 1)
        yield* (yield* app.connection(0)).until((talk) => talk.ended)
      })
    )
  }

  it.live("with bytes behind its end costs its connection: they answer no later request", () =>
    Effect.gen(function* () {
      const extra = "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned"
      const app = yield* listenRaw((talk) =>
        talk.socket.on("data", () => talk.write(`HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok${extra}`))
      )
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      for (let round = 0; round < 3; round++) {
        caller.write(`GET / HTTP/1.1\r\n${host}\r\n`)
        assert.match(yield* caller.head, /^HTTP\/1\.1 200 /u)
        yield* caller.until((talk) => talk.text.length >= 2)
        assert.strictEqual(caller.take(), "ok")
      }
      assert.lengthOf(app.connections, 3)
    })
  )

  it.live("that comes before its request costs its connection", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw((talk, index) => {
        talk.socket.once("data", () => talk.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
        if (index > 0) talk.socket.on("data", () => undefined)
      })
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      caller.write(`GET / HTTP/1.1\r\n${host}\r\n`)
      yield* caller.through("ok")
      const first = yield* app.connection(0)
      first.write("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned")
      yield* first.until((talk) => talk.ended)
      caller.write(`GET / HTTP/1.1\r\n${host}\r\n`)
      assert.notInclude(yield* caller.through("ok"), "poisoned")
      assert.lengthOf(app.connections, 2)
    })
  )
})
