import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { appId, dial, eventually, listenRaw, openRequests, proxyTo, writeUntilStuck } from "./harness.ts"

const upgrade =
  "GET /socket HTTP/1.1\r\nHost: app.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: abc\r\n\r\n"
const switching =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX: y\r\n\r\n"

/** A caller and an app that have switched protocols. */
const tunnel = (timeouts = {}) =>
  Effect.gen(function* () {
    const app = yield* listenRaw()
    const { port, proxy } = yield* proxyTo(app.port, timeouts)
    const caller = yield* dial(port)
    caller.write(upgrade)
    const connection = yield* app.connection(0)
    const request = yield* connection.head
    connection.write(switching)
    const answer = yield* caller.head
    return { app, proxy, port, caller, connection, request, answer }
  })

describe("an upgrade", () => {
  it.live("passes the request and the answer with what both need for it", () =>
    Effect.gen(function* () {
      const { request, answer, proxy } = yield* tunnel()
      assert.include(request, "\r\nUpgrade: websocket\r\n")
      assert.include(request, "\r\nconnection: upgrade\r\n")
      assert.include(request, "\r\nSec-WebSocket-Key: abc\r\n")
      assert.strictEqual(
        answer,
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nX: y\r\nconnection: upgrade\r\n\r\n"
      )
      const { outcomes, apps } = yield* proxy.traffic
      assert.strictEqual(outcomes.served, 1)
      assert.strictEqual(apps.get(appId)?.answers[1], 1)
    })
  )

  it.live("passes every byte both ways, HTTP or not", () =>
    Effect.gen(function* () {
      const { caller, connection } = yield* tunnel()
      const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, index) => (index * 7) % 256))
      caller.write(bytes)
      yield* connection.until((talk) => talk.text.length === bytes.length)
      assert.strictEqual(connection.take(), bytes.toString("latin1"))
      connection.write(bytes)
      yield* caller.until((talk) => talk.text.length === bytes.length)
      assert.strictEqual(caller.take(), bytes.toString("latin1"))
      caller.write("GET / HTTP/1.1\r\n\r\n")
      yield* connection.through("GET / HTTP/1.1\r\n\r\n")
    })
  )

  it.live("loses nothing that either side says before the other has heard of it", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      caller.write(`${upgrade}early`)
      const connection = yield* app.connection(0)
      yield* connection.head
      connection.write(`${switching}first`)
      yield* caller.head
      yield* caller.through("first")
      yield* connection.through("early")
    })
  )

  it.live("counts as open until it is closed, however quiet it is", () =>
    Effect.gen(function* () {
      const { caller, connection, proxy } = yield* tunnel({ keepAlive: 50, head: 50, sweep: 20 })
      yield* Effect.sleep(200)
      assert.strictEqual(yield* openRequests(proxy), 1)
      caller.socket.destroy()
      yield* connection.until((talk) => talk.ended)
      connection.socket.end()
      yield* eventually(openRequests(proxy), (open) => open === 0)
    })
  )

  it.live("stays half open when one side has said all", () =>
    Effect.gen(function* () {
      const { caller, connection, proxy } = yield* tunnel()
      caller.socket.end("bye")
      assert.strictEqual(yield* connection.rest, "bye")
      connection.write("and")
      yield* caller.through("and")
      connection.socket.end("good night")
      assert.strictEqual(yield* caller.rest, "good night")
      yield* eventually(openRequests(proxy), (open) => open === 0)
    })
  )

  it.live("breaks for the caller when it breaks for the app, and the other way round", () =>
    Effect.gen(function* () {
      const one = yield* tunnel()
      one.connection.socket.resetAndDestroy()
      yield* one.caller.until((talk) => talk.closed)
      yield* eventually(openRequests(one.proxy), (open) => open === 0)
      const other = yield* tunnel()
      other.caller.socket.resetAndDestroy()
      yield* other.connection.until((talk) => talk.closed || talk.ended)
      yield* eventually(openRequests(other.proxy), (open) => open === 0)
    })
  )

  it.live("lives on when the app's route changes", () =>
    Effect.gen(function* () {
      const { caller, connection, proxy } = yield* tunnel()
      yield* proxy.removeRoute(appId)
      caller.write("still here")
      yield* connection.through("still here")
      assert.strictEqual(yield* openRequests(proxy), 1)
    })
  )

  it.live("that the app declines is an answer like any other", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      caller.write(upgrade)
      const connection = yield* app.connection(0)
      yield* connection.head
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
      assert.match(yield* caller.through("no"), /^HTTP\/1\.1 200 /u)
      caller.write("GET /next HTTP/1.1\r\nHost: app.test\r\n\r\n")
      assert.match(yield* connection.head, /^GET \/next /u)
    })
  )

  for (const [what, request] of [
    [
      "to HTTP/2",
      "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n"
    ],
    [
      "with a body",
      "POST / HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nab"
    ],
    ["that Connection does not name", "GET / HTTP/1.1\r\nHost: app.test\r\nUpgrade: websocket\r\n\r\n"],
    ["in HTTP/1.0", "GET / HTTP/1.0\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"]
  ] as const) {
    it.live(`${what} is not passed on: the request goes to the app as it would without`, () =>
      Effect.gen(function* () {
        const app = yield* listenRaw()
        const { port } = yield* proxyTo(app.port)
        const caller = yield* dial(port)
        caller.write(request)
        const head = yield* (yield* app.connection(0)).head
        assert.notMatch(head, /upgrade|http2-settings/iu)
      })
    )
  }

  it.live("is not read faster than the other side takes it", () =>
    Effect.gen(function* () {
      const { caller, connection } = yield* tunnel()
      caller.socket.pause()
      const bytes = Buffer.alloc(67_108_864)
      const taken = yield* writeUntilStuck(connection, bytes)
      assert.isBelow(taken, bytes.length / 2)
      caller.absorb = () => undefined
      caller.socket.resume()
      yield* caller.until((talk) => talk.bytesSeen >= taken)
    })
  )
})
