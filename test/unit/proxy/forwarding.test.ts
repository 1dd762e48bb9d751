import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { appId, dial, listenRaw, proxyTo, startProxy, type Talk, type Upstream } from "./harness.ts"

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/** Sends a request to a silent app and gives what reached it, then answers. */
const forwarded = (request: string, answer = ok) =>
  Effect.gen(function* () {
    const app = yield* listenRaw()
    const { port } = yield* proxyTo(app.port)
    const caller = yield* dial(port)
    caller.write(request)
    const connection = yield* app.connection(0)
    const head = yield* connection.head
    connection.write(answer)
    return { head, caller, connection, app }
  })

/** The answer that a caller gets for what the app said; the connection stays open. */
const answered = (answer: string, request = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n") =>
  forwarded(request, answer).pipe(
    Effect.flatMap(({ caller }) => Effect.map(caller.head, (head) => ({ head, caller })))
  )

const fieldsOf = (head: string) => head.split("\r\n").slice(1, -2)

describe("a request on its way to the app", () => {
  it.live("keeps its line, its fields, their order and their letters", () =>
    Effect.gen(function* () {
      const { head } = yield* forwarded(
        "GET /a/../b?x=%20&y HTTP/1.1\r\nHost: app.test:8080\r\nX-Odd:  two  words \r\ncookie: a=b\r\nCookie: c\r\n\r\n"
      )
      assert.strictEqual(head.split("\r\n")[0], "GET /a/../b?x=%20&y HTTP/1.1")
      assert.deepStrictEqual(fieldsOf(head).slice(0, 4), [
        "Host: app.test:8080",
        "X-Odd:  two  words ",
        "cookie: a=b",
        "Cookie: c"
      ])
    })
  )

  it.live("says who asked, by which protocol and for which host", () =>
    Effect.gen(function* () {
      const { head } = yield* forwarded("GET / HTTP/1.1\r\nHost: App.Test:80\r\n\r\n")
      assert.deepStrictEqual(fieldsOf(head), [
        "Host: App.Test:80",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: App.Test:80"
      ])
    })
  )

  it.live("keeps what proxies before this one said, and adds the caller to the end of the last list", () =>
    Effect.gen(function* () {
      const { head } = yield* forwarded(
        "GET / HTTP/1.1\r\nX-Forwarded-For: 1.1.1.1\r\nHost: app.test\r\nX-Forwarded-For: 2.2.2.2\t\r\nConnection: x\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: outside\r\n\r\n"
      )
      assert.deepStrictEqual(fieldsOf(head), [
        "X-Forwarded-For: 1.1.1.1",
        "Host: app.test",
        "X-Forwarded-For: 2.2.2.2, 127.0.0.1\t",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: outside"
      ])
    })
  )

  it.live("loses what was meant for this hop, named in Connection or known as such", () =>
    Effect.gen(function* () {
      const { head } = yield* forwarded(
        "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: close, X-Secret\r\nConnection: Cookie\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\nProxy-Authorization: y\r\nTE: trailers\r\nTrailer: z\r\nUpgrade: foo\r\nX-Secret: 1\r\ncookie: 2\r\nKept: yes\r\n\r\n"
      )
      assert.deepStrictEqual(fieldsOf(head).slice(0, 2), ["Host: app.test", "Kept: yes"])
      assert.lengthOf(fieldsOf(head), 5)
    })
  )

  it.live("loses what passes for a field that matters in programs which read an underscore as a dash", () =>
    Effect.gen(function* () {
      const { head } = yield* forwarded(
        "GET / HTTP/1.1\r\nX_Forwarded_For: 1.1.1.1\r\nX-Forwarded_Proto: https\r\nHost: app.test\r\nContent_Length: 5\r\ntransfer_encoding: chunked\r\nX_Own: kept\r\n\r\n"
      )
      assert.deepStrictEqual(fieldsOf(head), [
        "Host: app.test",
        "X_Own: kept",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: app.test"
      ])
    })
  )

  it.live("does not lose its host or its length, whatever Connection names", () =>
    Effect.gen(function* () {
      const { head } = yield* forwarded(
        "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\nConnection: host, content-length, x-forwarded-for\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n"
      )
      assert.deepStrictEqual(fieldsOf(head).slice(0, 3), [
        "Host: app.test",
        "Content-Length: 0",
        "x-forwarded-for: 127.0.0.1"
      ])
    })
  )

  it.live("has a path where a URL was asked for, and the URL's host when HTTP/1.0 named no other", () =>
    Effect.gen(function* () {
      const both = yield* forwarded("GET http://APP.test/a?b HTTP/1.1\r\nHost: app.test:80\r\n\r\n")
      assert.match(both.head, /^GET \/a\?b HTTP\/1\.1\r\nHost: app\.test:80\r\n/u)
      const query = yield* forwarded("GET http://app.test?b HTTP/1.1\r\nHost: app.test\r\n\r\n")
      assert.match(query.head, /^GET \/\?b HTTP\/1\.1\r\n/u)
      const old = yield* forwarded("GET http://app.test/ HTTP/1.0\r\n\r\n")
      assert.match(old.head, /^GET \/ HTTP\/1\.1\r\n/u)
      assert.include(old.head, "\r\nhost: app.test\r\n")
      const options = yield* forwarded("OPTIONS http://app.test HTTP/1.1\r\nHost: app.test\r\n\r\n")
      assert.match(options.head, /^OPTIONS \* HTTP\/1\.1\r\n/u)
    })
  )

  it.live("is HTTP/1.1 even when it came as HTTP/1.0, whose callers expect no interim answer", () =>
    Effect.gen(function* () {
      const { head } = yield* forwarded("GET / HTTP/1.0\r\nHost: app.test\r\nExpect: 100-continue\r\n\r\n")
      assert.match(head, /^GET \/ HTTP\/1\.1\r\n/u)
      assert.notInclude(head, "xpect")
    })
  )

  it.live("is routed by any case of its hostname, with or without a port or a final dot", () =>
    Effect.gen(function* () {
      for (const host of [
        "app.test",
        "APP.TEST",
        "app.test:1",
        "App.Test:65535",
        "app.test:",
        "app.test.",
        "App.Test.:80"
      ]) {
        const { caller, head } = yield* forwarded(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
        assert.match(yield* caller.head, /^HTTP\/1\.1 200 /u)
        assert.include(head, `\r\nHost: ${host}\r\n`)
      }
      const { caller } = yield* forwarded("GET http://app.test./ HTTP/1.1\r\nHost: app.test\r\n\r\n")
      assert.match(yield* caller.head, /^HTTP\/1\.1 200 /u)
    })
  )

  it.live("has one final dot to its hostname at most", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { port } = yield* proxyTo(app.port)
      for (const host of ["app.test..", "."]) {
        const caller = yield* dial(port)
        caller.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
        assert.match(yield* caller.head, /^HTTP\/1\.1 404 /u, host)
      }
    })
  )

  it.live("has its chunks framed anew, without extensions, and keeps its trailers", () =>
    Effect.gen(function* () {
      const { head, connection } = yield* forwarded(
        "POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding:  Chunked\r\n\r\n005;ext=1\r\nhello\r\n0;x\r\nX-Sum: 9\r\nContent-Length: 1\r\n\r\n"
      )
      assert.include(head, "\r\ntransfer-encoding: chunked\r\n")
      assert.strictEqual(yield* connection.through("\r\n\r\n"), "5\r\nhello\r\n0\r\nX-Sum: 9\r\n\r\n")
    })
  )

  it.live("waits for its turn when it came before the answer to the one in front of it", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: app.test\r\n\r\n`
      caller.write(
        `${get("/1")}POST /2 HTTP/1.1\r\nHost: app.test\r\nContent-Length: 3\r\n\r\nabc${get("/3")}`
      )
      const connection = yield* app.connection(0)
      for (const [index, line] of ["GET /1 ", "POST /2 ", "GET /3 "].entries()) {
        const head = yield* connection.head
        assert.isTrue(head.startsWith(line), head)
        if (index === 1) assert.strictEqual(yield* connection.through("abc"), "abc")
        assert.strictEqual(connection.text, "")
        connection.write(`HTTP/1.1 20${index} OK\r\nContent-Length: 0\r\n\r\n`)
        assert.match(yield* caller.head, new RegExp(`^HTTP/1\\.1 20${index} `, "u"))
      }
      assert.lengthOf(app.connections, 1)
    })
  )
})

describe("an answer on its way to the caller", () => {
  it.live("keeps its line, its fields and its body, and the connection serves the next request", () =>
    Effect.gen(function* () {
      const { head, caller } = yield* answered(
        "HTTP/1.1 299 Odd one\r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Length: 2\r\n\r\nok"
      )
      assert.strictEqual(
        head,
        "HTTP/1.1 299 Odd one\r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Length: 2\r\n\r\n"
      )
      assert.strictEqual(yield* caller.through("ok"), "ok")
    })
  )

  it.live("loses what was meant for this hop", () =>
    Effect.gen(function* () {
      const { head } = yield* answered(
        "HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: x\r\nUpgrade: h2c\r\nX-Hop: 1\r\nX-Kept: 2\r\nContent-Length: 0\r\n\r\n"
      )
      assert.strictEqual(head, "HTTP/1.1 200 OK\r\nX-Kept: 2\r\nContent-Length: 0\r\n\r\n")
    })
  )

  it.live("has its chunks framed anew and keeps its trailers", () =>
    Effect.gen(function* () {
      const { head, caller } = yield* answered(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00a;x\r\n0123456789\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n"
      )
      assert.strictEqual(head, "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
      assert.strictEqual(
        yield* caller.through("\r\n\r\n"),
        "a\r\n0123456789\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n"
      )
    })
  )

  it.live(
    "that only the end of its connection ends comes in chunks, so that the caller knows it is whole",
    () =>
      Effect.gen(function* () {
        const { head, caller, connection } = yield* Effect.gen(function* () {
          const all = yield* forwarded(
            "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n",
            "HTTP/1.0 200 OK\r\nA: b\r\n\r\nhello"
          )
          return { ...all, head: yield* all.caller.head }
        })
        connection.socket.end()
        assert.strictEqual(head, "HTTP/1.1 200 OK\r\nA: b\r\ntransfer-encoding: chunked\r\n\r\n")
        assert.strictEqual(yield* caller.through("0\r\n\r\n"), "5\r\nhello\r\n0\r\n\r\n")
      })
  )

  it.live("to HTTP/1.0 has no chunks, and ends with the connection when it has no length", () =>
    Effect.gen(function* () {
      const { head, caller } = yield* answered(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: app.test\r\nConnection: keep-alive\r\n\r\n"
      )
      assert.strictEqual(head, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
      assert.strictEqual(yield* caller.rest, "hello")
    })
  )

  it.live("to HTTP/1.0 keeps the connection only where that was asked for", () =>
    Effect.gen(function* () {
      const kept = yield* answered(ok, "GET / HTTP/1.0\r\nHost: app.test\r\nConnection: Keep-Alive\r\n\r\n")
      assert.include(kept.head, "\r\nconnection: keep-alive\r\n")
      const closed = yield* answered(ok, "GET / HTTP/1.0\r\nHost: app.test\r\n\r\n")
      assert.include(closed.head, "\r\nconnection: close\r\n")
      assert.strictEqual(yield* closed.caller.rest, "ok")
    })
  )

  it.live("closes the connection when the caller asked for it", () =>
    Effect.gen(function* () {
      const { head, caller } = yield* answered(
        ok,
        "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n\r\n"
      )
      assert.include(head, "\r\nconnection: close\r\n")
      assert.strictEqual(yield* caller.rest, "ok")
    })
  )

  it.live("to HEAD has no body, whatever length it names", () =>
    Effect.gen(function* () {
      const { caller, connection } = yield* forwarded(
        "HEAD / HTTP/1.1\r\nHost: app.test\r\n\r\nGET /next HTTP/1.1\r\nHost: app.test\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
      )
      assert.include(yield* caller.head, "Content-Length: 1000\r\n")
      assert.match(yield* connection.head, /^GET \/next /u)
    })
  )

  for (const [status, answer] of [
    [204, "HTTP/1.1 204 No Content\r\n\r\n"],
    [304, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"],
    [304, "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"]
  ] as const) {
    it.live(`has no body with ${JSON.stringify(answer)}`, () =>
      Effect.gen(function* () {
        const request = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"
        const { caller, connection } = yield* forwarded(request + request, answer)
        assert.match(yield* caller.head, new RegExp(`^HTTP/1\\.1 ${status} `, "u"))
        assert.strictEqual(caller.text, "")
        yield* connection.head
        connection.write(ok)
        assert.match(yield* caller.through("ok"), /^HTTP\/1\.1 200 /u)
      })
    )
  }

  it.live("comes after the interim ones that the app sent, and only HTTP/1.1 gets those", () =>
    Effect.gen(function* () {
      const interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
      const { caller } = yield* forwarded(
        "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n",
        `${interim}${interim}${ok}`
      )
      assert.strictEqual(yield* caller.through("ok"), `${interim}${interim}${ok}`)
      const old = yield* forwarded("GET / HTTP/1.0\r\nHost: app.test\r\n\r\n", `${interim}${ok}`)
      assert.match(yield* old.caller.rest, /^HTTP\/1\.1 200 /u)
    })
  )

  it.live("lets the app decide whether it wants a body that was announced", () =>
    Effect.gen(function* () {
      const request = "PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
      const wanted = yield* forwarded(request, "HTTP/1.1 100 Continue\r\n\r\n")
      assert.include(wanted.head, "\r\nExpect: 100-continue\r\n")
      assert.strictEqual(yield* wanted.caller.head, "HTTP/1.1 100 Continue\r\n\r\n")
      wanted.caller.write("hello")
      assert.strictEqual(yield* wanted.connection.through("hello"), "hello")
      wanted.connection.write(ok)
      assert.match(yield* wanted.caller.through("ok"), /^HTTP\/1\.1 200 /u)

      const refused = yield* forwarded(request, "HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
      assert.match(yield* refused.caller.rest, /^HTTP\/1\.1 417 No\r\n[\s\S]*connection: close\r\n/u)
    })
  )
})

describe("an answer of the proxy's own", () => {
  const ask = (port: number, request: string) =>
    Effect.gen(function* () {
      const caller: Talk = yield* dial(port)
      caller.write(request)
      return yield* caller.rest
    })

  it.live(
    "is 404 for a hostname that no app has, 503 with the reason for an app that takes no requests",
    () =>
      Effect.gen(function* () {
        const { proxy, port } = yield* startProxy()
        const reason = "the app is stopped: ünusual"
        yield* proxy.setRoute({ appId, hostnames: ["app.test"], target: { kind: "unavailable", reason } })
        const unknown = yield* ask(port, "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
        assert.match(unknown, /^HTTP\/1\.1 404 Not Found\r\n/u)
        const stopped = yield* ask(port, "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n")
        assert.match(stopped, /^HTTP\/1\.1 503 Service Unavailable\r\n/u)
        const [, body = ""] = stopped.split("\r\n\r\n")
        assert.strictEqual(Buffer.from(body, "latin1").toString(), `${reason}\n`)
        assert.include(stopped, `content-length: ${body.length}\r\n`)
        const { outcomes, apps } = yield* proxy.traffic
        assert.deepStrictEqual(outcomes, {
          served: 0,
          noSuchHost: 1,
          wrongHost: 0,
          refused: 1,
          unreachable: 0
        })
        assert.deepStrictEqual(apps.get(appId)?.routed, 0)
      })
  )

  it.live("is 502 when the app does not listen, or hangs up without an answer", () =>
    Effect.gen(function* () {
      const app: Upstream = yield* listenRaw((talk) => talk.socket.once("data", () => talk.socket.end()))
      const { proxy, port } = yield* proxyTo(app.port)
      const request = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"
      assert.match(yield* ask(port, request), /^HTTP\/1\.1 502 Bad Gateway\r\n/u)
      assert.lengthOf(app.connections, 1)
      yield* proxy.setRoute({
        appId,
        hostnames: ["app.test"],
        target: { kind: "up", host: "127.0.0.1", port: 1 }
      })
      assert.match(yield* ask(port, request), /^HTTP\/1\.1 502 [\s\S]*does not accept connections/u)
      assert.strictEqual((yield* proxy.traffic).outcomes.unreachable, 2)
    })
  )

  it.live("to HEAD has no body", () =>
    Effect.gen(function* () {
      const { port } = yield* startProxy()
      const answer = yield* ask(port, "HEAD / HTTP/1.1\r\nHost: other.test\r\n\r\n")
      assert.match(answer, /^HTTP\/1\.1 404 [\s\S]*\r\n\r\n$/u)
    })
  )

  it.live("reaches a caller that is still sending its body", () =>
    Effect.gen(function* () {
      const { port } = yield* startProxy()
      const caller = yield* dial(port)
      caller.write("POST / HTTP/1.1\r\nHost: other.test\r\nContent-Length: 3000000\r\n\r\n")
      caller.write("x".repeat(3_000_000))
      assert.match(yield* caller.rest, /^HTTP\/1\.1 404 /u)
      assert.strictEqual(caller.errorCode, "")
    })
  )
})
