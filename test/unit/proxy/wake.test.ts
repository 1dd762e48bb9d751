import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import type { AsleepTarget, Proxy, UnavailableTarget, UpTarget } from "../../../src/services/Proxy.ts"
import {
  appId,
  dial,
  eventually,
  freePort,
  listenRaw,
  openRequests,
  startProxy,
  type Talk,
  writeUntilStuck
} from "./harness.ts"

/** An app that sleeps, in front of an upstream that is not asked before the test wakes it. */
const asleep = (options: Parameters<typeof startProxy>[0] = {}) =>
  Effect.gen(function* () {
    const app = yield* listenRaw()
    const { port, proxy } = yield* startProxy({ probe: 50, sweep: 20, ...options })
    const outcome = yield* Deferred.make<UpTarget | UnavailableTarget>()
    const asked = { count: 0 }
    const target: AsleepTarget = {
      kind: "asleep",
      wake: Effect.suspend(() => {
        asked.count++
        return Deferred.await(outcome)
      })
    }
    const route = { appId, hostnames: ["app.test"] }
    yield* proxy.setRoute({ ...route, target })
    const up: UpTarget = { kind: "up", host: "127.0.0.1", port: app.port }
    const wake = Deferred.succeed(outcome, up)
    const refuse = (reason: string) => Deferred.succeed(outcome, { kind: "unavailable", reason })
    return { app, port, proxy, route, up, asked, wake, refuse }
  })

const held = (proxy: Proxy["Service"]) =>
  proxy.traffic.pipe(Effect.map(({ apps }) => apps.get(appId)?.held ?? 0))
const untilHeld = (proxy: Proxy["Service"], count: number) => eventually(held(proxy), (now) => now === count)

const get = "GET /a HTTP/1.1\r\nHost: app.test\r\n\r\n"
const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/** Answers the only request on a connection, and gives what came of it. */
const answer = (talk: Talk, text = ok) =>
  Effect.gen(function* () {
    const head = yield* talk.head
    talk.write(text)
    return head
  })

describe("a request that finds its app asleep", () => {
  it.live("goes on when the app is awake, changed as any other is", () =>
    Effect.gen(function* () {
      const { app, port, proxy, asked, wake } = yield* asleep()
      const caller = yield* dial(port)
      caller.write(
        "GET /a HTTP/1.1\r\nHost: app.test\r\nConnection: close, X-Own\r\nX-Own: 1\r\nA: b\r\n\r\n"
      )
      yield* untilHeld(proxy, 1)
      assert.strictEqual(app.connections.length, 0)
      yield* wake
      assert.strictEqual(
        yield* answer(yield* app.connection(0)),
        "GET /a HTTP/1.1\r\nHost: app.test\r\nA: b\r\nx-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: app.test\r\n\r\n"
      )
      assert.match(yield* caller.rest, /^HTTP\/1\.1 200 .*ok$/su)
      assert.strictEqual(asked.count, 1)
      assert.strictEqual((yield* proxy.traffic).outcomes.served, 1)
    })
  )

  it.live("brings its body, whichever way that is framed and however it comes in pieces", () =>
    Effect.gen(function* () {
      for (const [head, pieces, body] of [
        ["Content-Length: 10", ["01234", "56789"], "0123456789"],
        [
          "Transfer-Encoding: chunked",
          ["5;x=y\r\n01", "234\r\n", "5\r\n56789\r\n0\r\nA: b\r\n\r\n"],
          "2\r\n01\r\n3\r\n234\r\n5\r\n56789\r\n0\r\nA: b\r\n\r\n"
        ]
      ] as const) {
        const { app, port, proxy, wake } = yield* asleep()
        const caller = yield* dial(port)
        caller.write(`POST /a HTTP/1.1\r\nHost: app.test\r\n${head}\r\n\r\n`)
        yield* untilHeld(proxy, 1)
        for (const piece of pieces) {
          caller.write(piece)
          yield* Effect.sleep(20)
        }
        yield* wake
        const connection = yield* app.connection(0)
        yield* connection.head
        assert.strictEqual(yield* connection.through(body), body)
        connection.write(ok)
        assert.match(yield* caller.through("ok"), /^HTTP\/1\.1 200 /u)
      }
    })
  )

  it.live("goes on with a body that still comes", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep()
      const caller = yield* dial(port)
      caller.write("POST /a HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\n01234")
      yield* untilHeld(proxy, 1)
      yield* wake
      const connection = yield* app.connection(0)
      yield* connection.head
      yield* connection.through("01234")
      caller.write("56789")
      yield* connection.through("56789")
      connection.write(ok)
      yield* caller.through("ok")
      caller.write(get)
      assert.match(yield* connection.head, /^GET \/a /u)
    })
  )

  it.live("is not read further when its body is large, and loses nothing of it", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep()
      const caller = yield* dial(port)
      const body = Buffer.alloc(33_554_432, "0123456789abcdef")
      caller.write(`PUT /a HTTP/1.1\r\nHost: app.test\r\nContent-Length: ${body.length}\r\n\r\n`)
      const taken = yield* writeUntilStuck(caller, body)
      assert.isBelow(taken, body.length / 2)
      assert.strictEqual(yield* held(proxy), 1)
      yield* wake
      const connection = yield* app.connection(0)
      yield* connection.head
      let seen = connection.take().length
      connection.absorb = (bytes) => {
        seen += bytes.length
      }
      yield* connection.until(() => seen === body.length, "the whole body")
      connection.write(ok)
      assert.match(yield* caller.through("ok"), /200 OK/u)
    })
  )

  it.live("counts as open all the while, and no longer when it is answered", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep()
      const caller = yield* dial(port)
      caller.write(get)
      yield* untilHeld(proxy, 1)
      assert.strictEqual(yield* openRequests(proxy), 1)
      yield* wake
      const connection = yield* app.connection(0)
      yield* connection.head
      assert.strictEqual(yield* held(proxy), 0)
      assert.strictEqual(yield* openRequests(proxy), 1)
      connection.write(ok)
      yield* caller.through("ok")
      yield* eventually(openRequests(proxy), (open) => open === 0)
    })
  )

  it.live("is answered with 503, Retry-After and the reason when the app cannot be woken", () =>
    Effect.gen(function* () {
      const { port, proxy, route } = yield* asleep()
      const reason = "This host lacks 64 MiB of memory for the app."
      const wake = Effect.succeed({ kind: "unavailable", reason, retryAfter: 30 } as const)
      yield* proxy.setRoute({ ...route, target: { kind: "asleep", wake } })
      const caller = yield* dial(port)
      caller.write("POST /a HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\n01234")
      const head = yield* caller.head
      assert.match(head, /^HTTP\/1\.1 503 Service Unavailable\r\n/u)
      assert.include(head, "\r\nretry-after: 30\r\n")
      assert.include(head, "\r\ncache-control: no-store\r\n")
      assert.strictEqual(yield* caller.rest, `${reason}\n`)
    })
  )

  it.live("is answered with 502 when the app is awake but does not listen", () =>
    Effect.gen(function* () {
      const { port, proxy, route } = yield* asleep({ settle: 100, settleRetry: 20 })
      const wake = Effect.succeed({ kind: "up", host: "127.0.0.1", port: 1 } as const)
      yield* proxy.setRoute({ ...route, target: { kind: "asleep", wake } })
      const caller = yield* dial(port)
      caller.write(get)
      assert.match(yield* caller.rest, /^HTTP\/1\.1 502 /u)
    })
  )

  it.live("waits a while for the program of an app that is awake to listen, whatever its method", () =>
    Effect.gen(function* () {
      const { port, proxy, route } = yield* asleep()
      const later = yield* freePort
      const wake = Effect.succeed({ kind: "up", host: "127.0.0.1", port: later } as const)
      yield* proxy.setRoute({ ...route, target: { kind: "asleep", wake } })
      const [reader, writer, leaver] = [yield* dial(port), yield* dial(port), yield* dial(port)]
      reader.write(get)
      writer.write("POST /p HTTP/1.1\r\nHost: app.test\r\nContent-Length: 200000\r\n\r\n")
      const body = "x".repeat(100_000)
      writer.write(body)
      leaver.write(get)
      yield* eventually(openRequests(proxy), (open) => open === 3)
      yield* untilHeld(proxy, 0)
      leaver.socket.resetAndDestroy()
      yield* eventually(openRequests(proxy), (open) => open === 2)
      // comes when the app is awake already
      const third = yield* dial(port)
      third.write(get)
      yield* eventually(openRequests(proxy), (open) => open === 3)
      yield* Effect.sleep(300)
      const app = yield* listenRaw((talk) => {
        let seen = ""
        talk.absorb = (bytes) => {
          seen += bytes.toString("latin1")
          const whole = seen.startsWith("GET")
            ? seen.endsWith("\r\n\r\n")
            : seen.endsWith(`\r\n\r\n${body}${body}`)
          if (whole) talk.write(ok)
        }
      }, later)
      writer.write(body)
      for (const caller of [reader, writer, third]) {
        assert.match(yield* caller.through("ok"), /HTTP\/1\.1 200 /u)
      }
      assert.lengthOf(app.connections, 3)
      yield* eventually(openRequests(proxy), (open) => open === 0)
      assert.include((yield* proxy.traffic).apps.get(appId), { unreachable: 0, routed: 4 })
    })
  )

  it.live("is not sent to the program of an app twice when that could do harm, however early it was", () =>
    Effect.gen(function* () {
      const { app, port, wake } = yield* asleep()
      const caller = yield* dial(port)
      caller.write("POST /p HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\nab")
      yield* wake
      const connection = yield* app.connection(0)
      yield* connection.through("ab")
      connection.socket.resetAndDestroy()
      assert.match(yield* caller.head, /^HTTP\/1\.1 502 /u)
      assert.lengthOf(app.connections, 1)
    })
  )

  it.live("is forgotten when its caller breaks off, in a body too, and never reaches the app", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep()
      const unfinished = "POST /a HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\n01234"
      for (const request of [get, unfinished]) {
        const caller = yield* dial(port)
        caller.write(request)
        yield* untilHeld(proxy, 1)
        caller.socket.resetAndDestroy()
        yield* untilHeld(proxy, 0)
      }
      yield* wake
      yield* eventually(openRequests(proxy), (open) => open === 0)
      const caller = yield* dial(port)
      caller.write("GET /other HTTP/1.1\r\nHost: app.test\r\n\r\n")
      assert.match(yield* (yield* app.connection(0)).head, /^GET \/other /u)
      assert.strictEqual(app.connections.length, 1)
    })
  )

  it.live("is forgotten when its caller has closed its connection, read to its end or not", () =>
    Effect.gen(function* () {
      const { port, proxy } = yield* asleep()
      const upload = `PUT /a HTTP/1.1\r\nHost: app.test\r\nContent-Length: 999999\r\n\r\n${"x".repeat(500_000)}`
      for (const request of [get, upload]) {
        const caller = yield* dial(port)
        caller.write(request)
        yield* untilHeld(proxy, 1)
        caller.socket.destroy()
        yield* untilHeld(proxy, 0)
      }
    })
  )

  it.live("is answered when its caller has closed its sending side only", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep()
      const caller = yield* dial(port)
      caller.socket.end(get)
      yield* untilHeld(proxy, 1)
      yield* caller.through("HTTP/1.1 100 Continue\r\n\r\n")
      yield* caller.through("HTTP/1.1 100 Continue\r\n\r\n")
      yield* wake
      yield* answer(yield* app.connection(0))
      assert.match(yield* caller.rest, /HTTP\/1\.1 200 OK.*ok$/su)
    })
  )

  it.live("is answered in HTTP/1.0 too, where no interim answer is sent", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep()
      const caller = yield* dial(port)
      caller.socket.end("GET /a HTTP/1.0\r\nHost: app.test\r\n\r\n")
      yield* untilHeld(proxy, 1)
      yield* Effect.sleep(200)
      yield* wake
      yield* answer(yield* app.connection(0))
      assert.match(yield* caller.rest, /^HTTP\/1\.1 200 OK/u)
    })
  )

  it.live("is forgotten as soon as its caller has left, and costs the app nothing", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep({ probe: 600_000 })
      const stays = yield* dial(port)
      stays.write(get)
      for (let leaves = 0; leaves < 5; leaves++) {
        const caller = yield* dial(port)
        caller.write(get)
        yield* untilHeld(proxy, 2 + leaves)
        caller.socket.end()
      }
      const left = yield* dial(port)
      left.write(get)
      yield* untilHeld(proxy, 7)
      left.socket.destroy()
      yield* untilHeld(proxy, 6)
      yield* wake
      for (let at = 0; at < 6; at++) yield* answer(yield* app.connection(at))
      assert.match(yield* stays.through("ok"), /^HTTP\/1\.1 200 OK/u)
      assert.strictEqual(app.connections.length, 6)
    })
  )

  it.live("waits as long as its caller does", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep({
        head: 50,
        keepAlive: 50,
        connect: 50,
        linger: 50,
        halfClosed: 50
      })
      const caller = yield* dial(port)
      caller.write(get)
      yield* untilHeld(proxy, 1)
      yield* Effect.sleep(500)
      yield* wake
      yield* answer(yield* app.connection(0))
      assert.match(yield* caller.through("ok"), /^HTTP\/1\.1 200 OK/u)
    })
  )

  it.live("comes before what its caller sends after it", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep()
      const caller = yield* dial(port)
      caller.write(`${get}GET /b HTTP/1.1\r\nHost: app.test\r\n\r\n`)
      yield* untilHeld(proxy, 1)
      yield* wake
      const connection = yield* app.connection(0)
      assert.match(yield* answer(connection), /^GET \/a /u)
      yield* caller.through("ok")
      assert.match(yield* answer(connection), /^GET \/b /u)
      yield* caller.through("ok")
    })
  )

  it.live("asks for its body only when the app does", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep()
      const caller = yield* dial(port)
      caller.write("PUT /a HTTP/1.1\r\nHost: app.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
      yield* untilHeld(proxy, 1)
      yield* Effect.sleep(100)
      assert.strictEqual(caller.text, "")
      yield* wake
      const connection = yield* app.connection(0)
      assert.include(yield* connection.head, "\r\nExpect: 100-continue\r\n")
      connection.write("HTTP/1.1 100 Continue\r\n\r\n")
      yield* caller.through("HTTP/1.1 100 Continue\r\n\r\n")
      caller.write("ab")
      yield* connection.through("ab")
    })
  )

  it.live("to switch protocols is carried straight through the wake", () =>
    Effect.gen(function* () {
      const { app, port, proxy, wake } = yield* asleep()
      const caller = yield* dial(port)
      caller.write(
        "GET /socket HTTP/1.1\r\nHost: app.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly"
      )
      yield* untilHeld(proxy, 1)
      yield* wake
      const connection = yield* app.connection(0)
      assert.include(yield* connection.head, "\r\nUpgrade: websocket\r\n")
      connection.write(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst"
      )
      assert.match(yield* caller.through("first"), /HTTP\/1\.1 101 /u)
      yield* connection.through("early")
      caller.write("later")
      yield* connection.through("later")
      assert.strictEqual(yield* openRequests(proxy), 1)
    })
  )

  it.live("wakes the app that has the port which it comes over", () =>
    Effect.gen(function* () {
      const { app, proxy, route, wake, asked } = yield* asleep()
      const hostPort = yield* freePort
      const target = yield* Effect.map(Deferred.make<UpTarget>(), (outcome) => ({
        kind: "asleep" as const,
        wake: Effect.suspend(() => {
          asked.count++
          return Deferred.await(outcome)
        }),
        outcome
      }))
      yield* wake
      yield* proxy.setRoute({ ...route, target, hostPort })
      const caller = yield* dial(hostPort)
      caller.write("GET /own HTTP/1.1\r\nHost: anything.test\r\n\r\n")
      yield* untilHeld(proxy, 1)
      yield* Deferred.succeed(target.outcome, { kind: "up", host: "127.0.0.1", port: app.port })
      assert.match(yield* answer(yield* app.connection(0)), /^GET \/own /u)
      yield* caller.through("ok")
    })
  )
})

describe("an app that goes to sleep", () => {
  it.live("finishes what it answers by then, and gets the next request in its next life only", () =>
    Effect.gen(function* () {
      const { app, port, proxy, route, up, wake, asked } = yield* asleep()
      yield* proxy.setRoute({ ...route, target: up })
      const first = yield* dial(port)
      first.write(get)
      const before = yield* app.connection(0)
      yield* before.head
      const idle = yield* dial(port)
      idle.write(get)
      const pooled = yield* app.connection(1)
      yield* answer(pooled)
      yield* idle.through("ok")

      yield* proxy.setRoute({
        ...route,
        target: {
          kind: "asleep",
          wake: Effect.suspend(() => {
            asked.count++
            return wake.pipe(Effect.as(up))
          })
        }
      })
      yield* pooled.until((talk) => talk.closed || talk.ended, "the unused connection's end")
      before.write(ok)
      yield* first.through("ok")
      first.write("GET /next HTTP/1.1\r\nHost: app.test\r\n\r\n")
      assert.match(yield* answer(yield* app.connection(2)), /^GET \/next /u)
      yield* first.through("ok")
      assert.strictEqual(asked.count, 1)
    })
  )

  it.live("with a request that could be sent again is woken for it", () =>
    Effect.gen(function* () {
      const { app, port, proxy, route, up, asked } = yield* asleep()
      yield* proxy.setRoute({ ...route, target: up })
      const caller = yield* dial(port)
      caller.write(get)
      const former = yield* app.connection(0)
      yield* answer(former)
      yield* caller.through("ok")
      caller.write("PUT /b HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\n\r\nhello")
      yield* former.through("hello")
      const wake = Effect.sync(() => {
        asked.count++
        return up
      })
      yield* proxy.setRoute({ ...route, target: { kind: "asleep", wake } })
      former.socket.resetAndDestroy()
      const next = yield* app.connection(1)
      assert.match(yield* next.head, /^PUT \/b /u)
      yield* next.through("hello")
      next.write(ok)
      yield* caller.through("ok")
      assert.strictEqual(asked.count, 1)
      assert.include((yield* proxy.traffic).apps.get(appId), { open: 0, routed: 2, unreachable: 0 })
    })
  )
})
