import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { appId, dial, listenRaw, openRequests, proxyTo, type Talk } from "./harness.ts"

const get = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"
const answer = (body: string) => `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`

/** Answers every request with its name; connections after `hangUpFrom` requests are closed instead. */
const namedApp = (name: string) =>
  listenRaw((talk) => {
    talk.socket.on("data", () => {
      if (talk.text.endsWith("\r\n\r\n")) talk.write(answer(name))
    })
  })

/** Answers the first request of its first connection, and closes that one at the second. Records every request. */
const forgetfulApp = (requests: Array<string>) =>
  listenRaw((talk, index) => {
    let count = 0
    talk.socket.on("data", (bytes) => {
      requests.push(bytes.toString("latin1"))
      count++
      if (index === 0 && count === 2) talk.socket.destroy()
      else talk.write(answer("ok"))
    })
  })

const exchange = (caller: Talk, request: string) =>
  Effect.suspend(() => {
    caller.write(request)
    return caller.head
  })

describe("connections to an app", () => {
  it.live("are used again, by any caller", () =>
    Effect.gen(function* () {
      const app = yield* namedApp("a")
      const { port } = yield* proxyTo(app.port)
      for (let caller = 0; caller < 5; caller++) {
        const talk = yield* dial(port)
        for (let round = 0; round < 3; round++) {
          yield* exchange(talk, get)
          yield* talk.through("a")
        }
      }
      assert.lengthOf(app.connections, 1)
    })
  )

  it.live("are not used again after the app said that it closes them", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw((talk) => {
        talk.socket.on("data", () =>
          talk.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        )
      })
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      for (let round = 0; round < 3; round++) yield* exchange(caller, get)
      assert.lengthOf(app.connections, 3)
    })
  )

  it.live("are closed when they are unused for a while", () =>
    Effect.gen(function* () {
      const app = yield* namedApp("a")
      const { port } = yield* proxyTo(app.port, { upstreamIdle: 50, sweep: 20 })
      const caller = yield* dial(port)
      yield* exchange(caller, get)
      yield* (yield* app.connection(0)).until((talk) => talk.ended)
    })
  )

  it.live(
    "of a former target are closed at once when the target changes, and the same caller reaches the new one",
    () =>
      Effect.gen(function* () {
        const first = yield* namedApp("first")
        const second = yield* namedApp("second")
        const { port, proxy } = yield* proxyTo(first.port)
        const caller = yield* dial(port)
        yield* exchange(caller, get)
        yield* caller.through("first")
        const target = { kind: "up", host: "127.0.0.1", port: second.port } as const
        yield* proxy.setRoute({ appId, hostnames: ["app.test"], target })
        yield* first.connections[0]?.until((talk) => talk.ended) ?? Effect.die("there was a connection")
        yield* exchange(caller, get)
        yield* caller.through("second")
      })
  )

  it.live("of a former life are never used in the next, though it has the same address", () =>
    Effect.gen(function* () {
      const app = yield* namedApp("a")
      const { port, proxy, target } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      yield* exchange(caller, get)
      yield* caller.through("a")
      const hostnames = ["app.test"]
      yield* proxy.setRoute({ appId, hostnames, target: { kind: "unavailable", reason: "it sleeps" } })
      yield* proxy.setRoute({ appId, hostnames, target })
      yield* exchange(caller, get)
      yield* caller.through("a")
      assert.lengthOf(app.connections, 2)
    })
  )

  it.live("stay when a route is set again with the same target", () =>
    Effect.gen(function* () {
      const app = yield* namedApp("a")
      const { port, proxy, target } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      yield* exchange(caller, get)
      yield* proxy.setRoute({ appId, hostnames: ["app.test", "also.test"], target })
      yield* caller.through("a")
      yield* exchange(caller, get)
      yield* caller.through("a")
      assert.lengthOf(app.connections, 1)
    })
  )

  it.live("that are busy when the target goes finish their answer, and close after it", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { port, proxy } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      caller.write(get)
      const connection = yield* app.connection(0)
      yield* connection.head
      yield* proxy.removeRoute(appId)
      assert.strictEqual(yield* openRequests(proxy), 1)
      connection.write(answer("late"))
      assert.match(yield* caller.through("late"), /^HTTP\/1\.1 200 /u)
      yield* connection.until((talk) => talk.ended)
      assert.isFalse((yield* proxy.traffic).apps.has(appId))
      assert.match(yield* exchange(caller, get), /^HTTP\/1\.1 404 /u)
    })
  )
})

describe("a request that meets a connection which the app closes at the same moment", () => {
  const meet = (request: string) =>
    Effect.gen(function* () {
      const requests: Array<string> = []
      const app = yield* forgetfulApp(requests)
      const { port, proxy } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      yield* exchange(caller, get)
      yield* caller.through("ok")
      const head = yield* exchange(caller, request)
      return { head, requests, proxy, connections: app.connections.length }
    })

  it.live("is sent again on a fresh one, and costs the caller nothing", () =>
    Effect.gen(function* () {
      const { head, requests, connections, proxy } = yield* meet(
        "GET /again HTTP/1.1\r\nHost: app.test\r\n\r\n"
      )
      assert.match(head, /^HTTP\/1\.1 200 /u)
      assert.lengthOf(requests, 3)
      assert.strictEqual(requests[1], requests[2])
      assert.strictEqual(connections, 2)
      const { outcomes, apps } = yield* proxy.traffic
      assert.deepStrictEqual([outcomes.served, outcomes.unreachable], [2, 0])
      assert.deepStrictEqual([apps.get(appId)?.routed, apps.get(appId)?.open], [2, 0])
    })
  )

  for (const framed of [
    "Content-Length: 5\r\n\r\nhello",
    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n"
  ]) {
    it.live(`is sent again with its body, where that is still here: ${JSON.stringify(framed)}`, () =>
      Effect.gen(function* () {
        const { head, requests } = yield* meet(`PUT / HTTP/1.1\r\nHost: app.test\r\n${framed}`)
        assert.match(head, /^HTTP\/1\.1 200 /u)
        assert.strictEqual(requests[1], requests[2])
        assert.include(requests[2] ?? "", "hello")
      })
    )
  }

  it.live("is not sent twice when that could do harm", () =>
    Effect.gen(function* () {
      const { head, requests, connections } = yield* meet(
        "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\n\r\nhello"
      )
      assert.match(head, /^HTTP\/1\.1 502 /u)
      assert.lengthOf(requests, 2)
      assert.strictEqual(connections, 1)
    })
  )

  it.live("is not sent a third time", () =>
    Effect.gen(function* () {
      let count = 0
      const app = yield* listenRaw((talk) => {
        talk.socket.on("data", () => {
          if (count++ === 0) talk.write(answer("ok"))
          else talk.socket.destroy()
        })
      })
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      yield* exchange(caller, get)
      yield* caller.through("ok")
      assert.match(yield* exchange(caller, get), /^HTTP\/1\.1 502 /u)
      assert.strictEqual(count, 3)
    })
  )

  it.live("is not sent again once a byte of its answer has come", () =>
    Effect.gen(function* () {
      let count = 0
      const app = yield* listenRaw((talk) => {
        talk.socket.on("data", () => {
          if (count++ === 0) talk.write(answer("ok"))
          else talk.socket.end("H")
        })
      })
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      yield* exchange(caller, get)
      yield* caller.through("ok")
      assert.match(yield* exchange(caller, get), /^HTTP\/1\.1 502 /u)
      assert.strictEqual(count, 2)
    })
  )

  it.live(
    "does not arise for one that must not be sent twice: that takes no connection that was unused for long",
    () =>
      Effect.gen(function* () {
        const app = yield* namedApp("a")
        const { port } = yield* proxyTo(app.port, { upstreamFresh: 0, sweep: 20 })
        const caller = yield* dial(port)
        const post = "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n"
        yield* exchange(caller, post)
        yield* caller.through("a")
        yield* Effect.sleep(100)
        yield* exchange(caller, post)
        yield* caller.through("a")
        assert.lengthOf(app.connections, 2)
        yield* Effect.sleep(100)
        yield* exchange(caller, get)
        yield* caller.through("a")
        assert.lengthOf(app.connections, 2)
      })
  )

  it.live("does not arise with an app that was seen to close connections at once without saying so", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw((talk, index) => {
        talk.socket.on("data", () => {
          talk.write(answer("a"))
          if (index === 0) talk.socket.end()
        })
      })
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      const post = "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n"
      yield* exchange(caller, get)
      yield* caller.through("a")
      yield* (yield* app.connection(0)).until(({ ended }) => ended)
      for (const [request, connections] of [
        [post, 2],
        [post, 3],
        [get, 3],
        [post, 4]
      ] as const) {
        yield* exchange(caller, request)
        yield* caller.through("a")
        assert.lengthOf(app.connections, connections)
      }
    })
  )

  it.live("does not arise for a body of which not all is kept, though it may be sent twice", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw((talk) => {
        talk.socket.on("data", () => {
          if (talk.text.endsWith("\r\n\r\n") || talk.text.endsWith("!")) talk.write(answer("a"))
        })
      })
      const { port } = yield* proxyTo(app.port, { upstreamFresh: 0, sweep: 20 })
      const caller = yield* dial(port)
      const put = (fields: string, body: string) =>
        `PUT / HTTP/1.1\r\nHost: app.test\r\n${fields}\r\n\r\n${body}`
      const large = `${"x".repeat(70_000)}!`
      for (const [index, request] of [
        get,
        put(`Content-Length: ${large.length}`, large),
        put("Transfer-Encoding: chunked", "1\r\n!\r\n0\r\n\r\n"),
        put("Content-Length: 1", "!")
      ].entries()) {
        caller.write(request)
        yield* caller.through("\r\n\r\na")
        assert.lengthOf(app.connections, Math.min(index + 1, 3))
        yield* Effect.sleep(100)
      }
    })
  )
})
