import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import type { UpTarget } from "../../../src/services/Proxy.ts"
import { ask, session } from "./h2-harness.ts"
import { appId, eventually, openRequests, type Talk } from "./harness.ts"
import { secureProxy } from "./tls-harness.ts"

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
const big = Buffer.alloc(16_777_216, "0123456789abcdef")

/** The app's side of the request that comes over its connection of this number. */
const served = (app: { connection: (index: number) => Effect.Effect<Talk> }, index = 0) =>
  Effect.flatMap(app.connection(index), (connection) =>
    Effect.map(connection.head, (head) => ({ connection, head }))
  )

const setUp = (options: Parameters<typeof secureProxy>[0] = {}) =>
  Effect.gen(function* () {
    const proxied = yield* secureProxy(options)
    return { ...proxied, client: yield* session(proxied.port) }
  })

describe("a request over HTTP/2", () => {
  it.live("reaches the app as one of HTTP/1.1, told where it comes from", () =>
    Effect.gen(function* () {
      const { app, client, proxy } = yield* setUp()
      const get = ask(client, { ":path": "/a?b", accept: "x", cookie: ["a=1", "b=2"], te: "trailers" })
      const { connection, head } = yield* served(app)
      assert.strictEqual(
        head,
        "GET /a?b HTTP/1.1\r\nhost: app.test\r\naccept: x\r\ncookie: a=1; b=2\r\nx-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: https\r\nx-forwarded-host: app.test\r\n\r\n"
      )
      connection.write(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive, X-Own\r\nX-Own: 1\r\nETag: 1\r\nETag: 2\r\n\r\nok"
      )
      yield* get.whole
      assert.strictEqual(get.status, 200)
      assert.strictEqual(get.body, "ok")
      assert.deepStrictEqual(get.headers?.["set-cookie"], ["a=1", "b=2"])
      assert.hasAnyKeys(get.headers, ["etag", "date"])
      assert.doesNotHaveAnyKeys(get.headers, ["keep-alive", "connection", "x-own"])
      const { outcomes, apps } = yield* proxy.traffic
      assert.strictEqual(outcomes.served, 1)
      assert.include(apps.get(appId), { open: 0, routed: 1 })
    })
  )

  it.live("brings its body in chunks, or with the length that it says", () =>
    Effect.gen(function* () {
      const { app, client } = yield* setUp()
      const unsized = ask(client, { ":method": "POST" }, false)
      unsized.stream.write("hello")
      const { connection, head } = yield* served(app)
      assert.include(head, "\r\ntransfer-encoding: chunked\r\n")
      yield* connection.through("5\r\nhello\r\n")
      unsized.stream.end()
      yield* connection.through("0\r\n\r\n")
      connection.write(ok)
      yield* unsized.whole
      const sized = ask(client, { ":method": "PUT", "content-length": 5 }, false)
      sized.stream.end("hello")
      assert.include(yield* connection.head, "\r\ncontent-length: 5\r\n")
      yield* connection.through("hello")
      connection.write(ok)
      assert.strictEqual((yield* sized.whole).body, "ok")
    })
  )

  it.live("streams both ways at once", () =>
    Effect.gen(function* () {
      const { app, client, proxy } = yield* setUp()
      const both = ask(client, { ":method": "POST" }, false)
      const { connection } = yield* served(app)
      connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
      for (const word of ["one", "two", "three"]) {
        both.stream.write(word)
        yield* connection.through(`${word}\r\n`)
        connection.write(`${word.length}\r\n${word}\r\n`)
        yield* both.until(({ body }) => body.endsWith(word))
      }
      both.stream.end()
      yield* connection.through("0\r\n\r\n")
      connection.write("0\r\n\r\n")
      yield* both.whole
      assert.strictEqual(both.body, "onetwothree")
      assert.strictEqual(yield* openRequests(proxy), 0)
    })
  )

  it.live("passes trailers both ways, but none that say how a message is read", () =>
    Effect.gen(function* () {
      const { app, client } = yield* setUp()
      const withTrailers = client.request(
        { ":path": "/", ":authority": "app.test", ":method": "POST" },
        { waitForTrailers: true }
      )
      withTrailers.on("wantTrailers", () =>
        withTrailers.sendTrailers({ a: "1", b: "2", "content-type": "x" })
      )
      withTrailers.end("body")
      const { connection: seen } = yield* served(app)
      yield* seen.through("4\r\nbody\r\n")
      yield* seen.through("0\r\na: 1\r\nb: 2\r\n\r\n")
      seen.write(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\nContent-Length: 7\r\n\r\n"
      )
      const trailers = yield* Effect.callback<object>((resume) => {
        withTrailers.on("trailers", (fields) => resume(Effect.succeed(fields)))
        withTrailers.resume()
      })
      assert.include(trailers, { x: "y" })
      assert.doesNotHaveAnyKeys(trailers, ["content-length"])
    })
  )

  it.live("passes interim answers, but not any number of them", () =>
    Effect.gen(function* () {
      const { app, client } = yield* setUp()
      const get = ask(client, { expect: "100-continue", ":method": "POST" }, false)
      const { connection, head } = yield* served(app)
      assert.include(head, "\r\nexpect: 100-continue\r\n")
      connection.write("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\n\r\n")
      yield* get.until(({ interim }) => interim.length === 1)
      assert.strictEqual(get.interim[0]?.[":status"], 103)
      assert.match(String(get.interim[0]?.link), /<\/a>.*<\/b>/u)
      connection.write("HTTP/1.1 102 Processing\r\n\r\n".repeat(1000))
      connection.write(ok)
      get.stream.end()
      yield* get.whole
      assert.strictEqual(get.body, "ok")
      assert.isBelow(get.interim.length, 20)
    })
  )

  it.live("may be HEAD, or be answered with a status that has no body", () =>
    Effect.gen(function* () {
      const { app, client } = yield* setUp()
      const head = ask(client, { ":method": "HEAD" })
      const { connection } = yield* served(app)
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")
      yield* head.whole
      assert.strictEqual(head.headers?.["content-length"], "99")
      for (const status of [204, 304]) {
        const get = ask(client)
        yield* connection.head
        connection.write(`HTTP/1.1 ${status} Fine\r\n\r\n`)
        assert.strictEqual((yield* get.whole).status, status)
      }
      const odd = ask(client)
      yield* connection.head
      connection.write("HTTP/1.1 205 Reset Content\r\nContent-Length: 2\r\n\r\nok")
      assert.strictEqual((yield* odd.whole).status, 205)
      const last = ask(client)
      yield* connection.head
      connection.write(ok)
      assert.strictEqual((yield* last.whole).body, "ok")
    })
  )

  it.live("goes beside others on one connection, each at its own pace", () =>
    Effect.gen(function* () {
      const { app, client, proxy } = yield* setUp()
      const slow = ask(client, { ":path": "/slow" })
      const first = yield* served(app, 0)
      const asks = Array.from({ length: 20 }, (_, index) => ask(client, { ":path": `/${index}` }))
      for (let index = 1; index <= 20; index++) {
        const { connection, head } = yield* served(app, index)
        const name = /^GET (\S+)/u.exec(head)?.[1] ?? ""
        connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${name.length}\r\n\r\n${name}`)
      }
      for (const [index, { whole }] of asks.entries()) {
        assert.strictEqual((yield* whole).body, `/${index}`)
      }
      assert.strictEqual(yield* openRequests(proxy), 1)
      first.connection.write(ok)
      assert.strictEqual((yield* slow.whole).body, "ok")
    })
  )

  it.live("is not read faster than the app takes it, and its answer not faster than its caller", () =>
    Effect.gen(function* () {
      const { app, client } = yield* setUp()
      const put = ask(client, { ":method": "PUT", "content-length": big.length }, false)
      const { connection } = yield* served(app)
      connection.socket.pause()
      put.stream.end(big)
      yield* Effect.sleep(500)
      assert.isBelow(connection.socket.bytesRead, big.length / 2)
      let seen = connection.take().length
      connection.absorb = (bytes) => {
        seen += bytes.length
      }
      connection.socket.resume()
      yield* connection.until(() => seen === big.length, "the whole request")

      put.keeps = false
      put.stream.pause()
      connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${big.length}\r\n\r\n`)
      connection.socket.write(big)
      yield* Effect.sleep(500)
      assert.isAbove(connection.socket.writableLength, big.length / 4)
      put.stream.resume()
      yield* put.whole
      assert.strictEqual(put.bytesSeen, big.length)
    })
  )

  it.live("that its caller gives up ends for the app too, and counts no longer", () =>
    Effect.gen(function* () {
      const { app, client, proxy } = yield* setUp()
      const get = ask(client)
      const { connection } = yield* served(app)
      assert.strictEqual(yield* openRequests(proxy), 1)
      get.stream.close(8)
      yield* connection.until(({ closed, ended }) => closed || ended)
      yield* eventually(openRequests(proxy), (open) => open === 0)
    })
  )

  for (const [what, leave] of [
    ["resets it", (stream: ReturnType<typeof ask>["stream"]) => stream.close(8)],
    ["resets it without an error", (stream: ReturnType<typeof ask>["stream"]) => stream.close(0)],
    ["closes its connection", (stream: ReturnType<typeof ask>["stream"]) => stream.session?.destroy()],
    ["is cut off", (stream: ReturnType<typeof ask>["stream"]) => stream.session?.socket.destroy()]
  ] as const) {
    it.live(`whose caller ${what} in the middle of the body never looks complete to the app`, () =>
      Effect.gen(function* () {
        const { app, client, proxy } = yield* setUp()
        const post = ask(client, { ":method": "POST" }, false)
        post.stream.write("half of it")
        const { connection } = yield* served(app)
        yield* connection.through("half of it\r\n")
        leave(post.stream)
        yield* connection.until(({ closed, ended }) => closed || ended)
        assert.strictEqual(connection.text, "")
        yield* eventually(openRequests(proxy), (open) => open === 0)
      })
    )
  }

  for (const [what, head, piece] of [
    ["with a length", "Content-Length: 10", "half"],
    ["in chunks", "Transfer-Encoding: chunked", "4\r\nhalf\r\n"]
  ] as const) {
    it.live(`whose answer ${what} breaks off is reset: it never looks complete`, () =>
      Effect.gen(function* () {
        const { app, client } = yield* setUp()
        const get = ask(client)
        const { connection } = yield* served(app)
        connection.write(`HTTP/1.1 200 OK\r\n${head}\r\n\r\n${piece}`)
        yield* get.until(({ body }) => body === "half")
        connection.socket.resetAndDestroy()
        yield* get.whole
        assert.isAbove(get.stream.rstCode, 0)
        assert.isFalse(get.ended)
      })
    )
  }

  it.live("that is answered before it is complete is asked for no more", () =>
    Effect.gen(function* () {
      const { app, client, proxy } = yield* setUp()
      for (const [index, answer] of [
        ok,
        "HTTP/1.1 413 Too Large\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n"
      ].entries()) {
        const post = ask(client, { ":method": "POST" }, false)
        post.stream.write("abc")
        const { connection } = yield* served(app, index)
        yield* connection.through("abc\r\n")
        connection.write(answer)
        yield* post.whole
        assert.deepStrictEqual([post.body, post.ended, post.stream.rstCode], ["ok", true, 0])
        if (index === 1) assert.include(post.trailers, { x: "y" })
      }
      assert.strictEqual(yield* openRequests(proxy), 0)
    })
  )

  it.live("is sent again when the app closed a kept connection at that moment", () =>
    Effect.gen(function* () {
      const { app, client } = yield* setUp()
      const first = ask(client)
      const { connection } = yield* served(app)
      connection.write(ok)
      yield* first.whole
      const second = ask(client, { ":path": "/again" })
      yield* connection.head
      connection.socket.resetAndDestroy()
      const next = yield* served(app, 1)
      assert.match(next.head, /^GET \/again /u)
      next.connection.write(ok)
      assert.strictEqual((yield* second.whole).body, "ok")
    })
  )
})

describe("the proxy's own answers over HTTP/2", () => {
  it.live("name what is wrong, short and not to be cached, and leave the connection open", () =>
    Effect.gen(function* () {
      const { app, client, proxy, target, port } = yield* setUp({
        options: { concurrency: { host: 5, app: 1 } }
      })
      const expectOwn = (get: ReturnType<typeof ask>, status: number, says: RegExp) =>
        Effect.map(get.whole, () => {
          assert.strictEqual(get.status, status, String(says))
          assert.match(get.body, says)
          assert.include(get.headers, {
            "cache-control": "no-store",
            "content-type": "text/plain; charset=utf-8"
          })
          assert.doesNotHaveAnyKeys(get.headers, ["connection"])
        })
      const unnamed = yield* session(port, {}, "")
      yield* expectOwn(
        ask(unnamed, { ":authority": "nobody.test" }),
        404,
        /no app here is called nobody\.test/u
      )
      yield* expectOwn(ask(client, { ":authority": "other.test" }), 421, /another hostname/u)
      yield* expectOwn(ask(client, { ":authority": "app.test:99999" }), 400, /not a hostname/u)
      yield* expectOwn(ask(client, { host: "other.test" }), 400, /different hosts/u)
      yield* expectOwn(ask(client, { a: "x".repeat(16_500) }), 431, /longer than/u)
      const open = ask(client)
      const { connection } = yield* served(app)
      const busy = ask(client)
      yield* expectOwn(busy, 503, /under way/u)
      assert.strictEqual(busy.headers?.["retry-after"], "1")
      connection.write(ok)
      yield* open.whole
      yield* proxy.setRoute({
        appId,
        hostnames: ["app.test"],
        target: { kind: "unavailable", reason: "It is stopped.", retryAfter: 9 }
      })
      const stopped = ask(client, { ":method": "POST" }, false)
      yield* expectOwn(stopped, 503, /^It is stopped\.\n$/u)
      assert.strictEqual(stopped.headers?.["retry-after"], "9")
      yield* proxy.setRoute({ appId, hostnames: ["app.test"], target: { ...target, port: 1 } })
      yield* expectOwn(ask(client), 502, /does not accept/u)
      const head = ask(client, { ":method": "HEAD" })
      yield* head.whole
      assert.deepStrictEqual([head.status, head.body], [502, ""])
      assert.isFalse(client.closed)
      assert.include((yield* proxy.traffic).outcomes, { noSuchHost: 1, wrongHost: 1, unreachable: 2 })
    })
  )

  it.live("stand for what the app says that HTTP/2 cannot", () =>
    Effect.gen(function* () {
      const { app, client } = yield* setUp()
      const odd = ask(client)
      const { connection } = yield* served(app)
      connection.write("HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok")
      yield* odd.whole
      assert.strictEqual(odd.status, 502)
    })
  )
})

describe("a WebSocket over HTTP/2", () => {
  const opening = { ":method": "CONNECT", ":protocol": "websocket", "sec-websocket-version": "13" }
  const accepting = (head: string) =>
    Effect.promise(() => import("../../../layers/proxy/http/h2/websocket.ts")).pipe(
      Effect.map(
        ({ acceptFor }) =>
          `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: chat\r\nSec-WebSocket-Accept: ${acceptFor(/sec-websocket-key: (\S+)/u.exec(head)?.[1] ?? "")}\r\n\r\n`
      )
    )

  const open = (options: Parameters<typeof secureProxy>[0] = {}) =>
    Effect.gen(function* () {
      const proxied = yield* setUp(options)
      const socket = ask(proxied.client, opening, false)
      const { connection, head } = yield* served(proxied.app)
      connection.write(`${yield* accepting(head)}first`)
      yield* socket.until(({ body }) => body === "first")
      return { ...proxied, socket, connection, head }
    })

  it.live("is offered, and opened at the app as one of HTTP/1.1", () =>
    Effect.gen(function* () {
      const { client, socket, connection, head, proxy } = yield* open()
      assert.isTrue(client.remoteSettings.enableConnectProtocol)
      assert.match(
        head,
        /^GET \/ HTTP\/1\.1\r\nhost: app\.test\r\nsec-websocket-version: 13\r\nupgrade: websocket\r\n/u
      )
      assert.match(head, /\r\nsec-websocket-key: [A-Za-z0-9+/]{22}==\r\n/u)
      assert.include(head, "\r\nconnection: upgrade\r\n")
      assert.strictEqual(socket.status, 200)
      assert.strictEqual(socket.headers?.["sec-websocket-protocol"], "chat")
      assert.doesNotHaveAnyKeys(socket.headers, ["upgrade", "connection", "sec-websocket-accept"])
      socket.stream.write("\0\xffbytes")
      yield* connection.until(({ text }) => text.endsWith("bytes"))
      connection.write("more")
      yield* socket.until(({ body }) => body === "firstmore")
      assert.strictEqual(yield* openRequests(proxy), 1)
      socket.stream.end("bye")
      yield* connection.until(({ ended }) => ended)
      connection.socket.end("good night")
      yield* socket.whole
      assert.strictEqual(socket.body, "firstmoregood night")
      yield* eventually(openRequests(proxy), (count) => count === 0)
    })
  )

  it.live("ends for one side when the other is gone", () =>
    Effect.gen(function* () {
      const one = yield* open()
      one.connection.socket.resetAndDestroy()
      yield* one.socket.whole
      assert.isAbove(one.socket.stream.rstCode, 0)
      assert.isFalse(one.socket.ended)
      const other = yield* open()
      other.socket.stream.close(8)
      yield* other.connection.until(({ closed, ended }) => closed || ended)
      const third = yield* open({ timeouts: { halfClosed: 100, sweep: 20 } })
      third.connection.socket.end()
      yield* third.socket.whole
      for (const { proxy } of [one, other, third]) {
        yield* eventually(openRequests(proxy), (count) => count === 0)
      }
    })
  )

  it.live("is carried straight through the wake of its app", () =>
    Effect.gen(function* () {
      const { app, client, proxy, target } = yield* setUp()
      const woken = yield* Deferred.make<UpTarget>()
      yield* proxy.setRoute({
        appId,
        hostnames: ["app.test"],
        target: { kind: "asleep", wake: Deferred.await(woken) }
      })
      const socket = ask(client, opening, false)
      yield* eventually(proxy.traffic, ({ apps }) => apps.get(appId)?.held === 1)
      yield* Deferred.succeed(woken, target)
      const { connection, head } = yield* served(app)
      connection.write(yield* accepting(head))
      yield* socket.until(({ status }) => status === 200)
      socket.stream.write("hello")
      yield* connection.through("hello")
    })
  )

  it.live("is no WebSocket when the app does not say so as it should", () =>
    Effect.gen(function* () {
      const { app, client, proxy } = yield* setUp()
      for (const [index, [answer, status]] of (
        [
          ["HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nbytes", 502],
          [
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nbytes",
            502
          ],
          [ok, 502],
          ["HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403],
          ["HTTP/1.1 301 Moved\r\nContent-Length: 0\r\nLocation: /\r\n\r\n", 301]
        ] as const
      ).entries()) {
        const socket = ask(client, opening, false)
        const { connection } = yield* served(app, index)
        connection.write(answer)
        yield* socket.whole
        assert.strictEqual(socket.status, status, answer)
        connection.socket.end()
      }
      yield* eventually(openRequests(proxy), (count) => count === 0)
    })
  )

  it.live("is the only protocol that is carried so", () =>
    Effect.gen(function* () {
      const { client } = yield* setUp()
      const other = ask(client, { ":method": "CONNECT", ":protocol": "connect-udp" }, false)
      yield* other.whole
      assert.strictEqual(other.status, 501)
    })
  )
})

describe("a request over HTTP/2 for an app that sleeps", () => {
  it.live("is held with its body, and forgotten when its caller gives it up", () =>
    Effect.gen(function* () {
      const { app, client, proxy, target } = yield* setUp()
      const woken = yield* Deferred.make<UpTarget>()
      let asked = 0
      const wake = Effect.suspend(() => {
        asked++
        return Deferred.await(woken)
      })
      yield* proxy.setRoute({ appId, hostnames: ["app.test"], target: { kind: "asleep", wake } })
      const held = eventually(proxy.traffic, ({ apps }) => apps.get(appId)?.held === 2)
      const put = ask(client, { ":method": "PUT", "content-length": big.length }, false)
      put.stream.end(big)
      const given = ask(client)
      yield* held
      given.stream.close(8)
      yield* eventually(proxy.traffic, ({ apps }) => apps.get(appId)?.held === 1)
      yield* Effect.sleep(300)
      yield* Deferred.succeed(woken, target)
      const { connection } = yield* served(app)
      let seen = connection.take().length
      connection.absorb = (bytes) => {
        seen += bytes.length
      }
      yield* connection.until(() => seen === big.length, "the whole body")
      connection.write(ok)
      assert.strictEqual((yield* put.whole).body, "ok")
      assert.strictEqual(app.connections.length, 1)
      assert.strictEqual(asked, 1)
    })
  )
})

describe("a connection of HTTP/2", () => {
  it.live("is closed when nothing is asked over it for a while, and not while something is", () =>
    Effect.gen(function* () {
      const { app, client } = yield* setUp({
        timeouts: { head: 300, keepAlive: 300, linger: 100, sweep: 20 }
      })
      const get = ask(client)
      const { connection } = yield* served(app)
      yield* Effect.sleep(800)
      connection.write(ok)
      assert.strictEqual((yield* get.whole).body, "ok")
      yield* eventually(
        Effect.sync(() => client.closed),
        (closed) => closed
      )
    })
  )

  it.live("is closed when nothing is ever asked over it", () =>
    Effect.gen(function* () {
      const { client } = yield* setUp({ timeouts: { head: 300, linger: 100, sweep: 20 } })
      yield* eventually(
        Effect.sync(() => client.destroyed),
        (destroyed) => destroyed
      )
    })
  )
})
