import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, SubscriptionRef } from "effect"
import { layerProxy } from "../../../layers/proxy/layer.ts"
import { Proxy } from "../../../src/services/Proxy.ts"
import {
  appId,
  dial,
  eventually,
  freePort,
  heldPort,
  listenRaw,
  proxyTo,
  startProxy,
  type Talk
} from "./harness.ts"

const answerOf = (talk: Talk, request: string) =>
  Effect.suspend(() => {
    talk.write(request)
    return talk.head
  })

const echo = listenRaw((talk) => {
  talk.socket.on("data", () => talk.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
})

describe("the proxy's port", () => {
  it.live("is reported, also when it was the kernel's choice", () =>
    Effect.gen(function* () {
      const { proxy, port } = yield* startProxy()
      assert.deepStrictEqual(proxy.address, { host: "127.0.0.1", port })
      assert.isAbove(port, 0)
    })
  )

  it.live("that is taken keeps the proxy from starting, with a sentence that names it", () =>
    Effect.gen(function* () {
      const { port } = yield* heldPort
      const exit = yield* Effect.exit(
        Effect.scoped(Layer.build(layerProxy({ listen: { address: "127.0.0.1", port } })))
      )
      assert.isTrue(Exit.isFailure(exit))
      assert.include(
        String(exit),
        `127.0.0.1 port ${port} cannot be listened on: another program listens there`
      )
    })
  )

  it.live("is closed with the layer, and so is every connection", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { talk, port } = yield* Effect.scoped(
        Effect.gen(function* () {
          const { port } = yield* proxyTo(app.port)
          const talk = yield* dial(port)
          talk.write("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n")
          yield* app.connection(0)
          return { talk, port }
        })
      )
      yield* talk.until((talk) => talk.closed)
      const after = yield* dial(port)
      yield* after.until((talk) => talk.closed)
      assert.strictEqual(after.errorCode, "ECONNREFUSED")
    })
  )

  it.live("asks callers to come back, rather than to go, until every app is routed", () =>
    Effect.gen(function* () {
      const { proxy, port } = yield* startProxy({}, { awaitRoutes: true })
      const ask = Effect.gen(function* () {
        return yield* answerOf(yield* dial(port), "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n")
      })
      const early = yield* ask
      assert.match(early, /^HTTP\/1\.1 503 /u)
      assert.match(early, /^retry-after: 1\r$/imu)
      yield* proxy.routesComplete
      assert.match(yield* ask, /^HTTP\/1\.1 404 /u)
    })
  )

  it.live("is not there on a host that serves no hostnames", () =>
    Effect.gen(function* () {
      const proxy = yield* Proxy
      assert.isUndefined(proxy.address)
    }).pipe(Effect.provide(layerProxy({})))
  )
})

describe("an app's own port", () => {
  const anyHost = "GET / HTTP/1.1\r\nHost: whatever.example\r\n\r\n"

  it.live("takes requests for that app whatever their Host says, until the route goes", () =>
    Effect.gen(function* () {
      const app = yield* echo
      const { proxy, target } = yield* proxyTo(app.port)
      const hostPort = yield* freePort
      const hostnames = ["app.test"]
      yield* proxy.setRoute({ appId, hostnames, target, hostPort })
      assert.match(yield* answerOf(yield* dial(hostPort), anyHost), /^HTTP\/1\.1 200 /u)
      yield* proxy.setRoute({
        appId,
        hostnames,
        target: { kind: "unavailable", reason: "stopped" },
        hostPort
      })
      assert.match(yield* answerOf(yield* dial(hostPort), anyHost), /^HTTP\/1\.1 503 /u)
      yield* proxy.removeRoute(appId)
      const after = yield* dial(hostPort)
      yield* after.until((talk) => talk.closed)
      assert.strictEqual(after.errorCode, "ECONNREFUSED")
    })
  )

  it.live("moves when the route names another", () =>
    Effect.gen(function* () {
      const app = yield* echo
      const { proxy, target } = yield* proxyTo(app.port)
      const first = yield* freePort
      yield* proxy.setRoute({ appId, hostnames: [], target, hostPort: first })
      const second = yield* freePort
      yield* proxy.setRoute({ appId, hostnames: [], target, hostPort: second })
      assert.match(yield* answerOf(yield* dial(second), anyHost), /^HTTP\/1\.1 200 /u)
      const old = yield* dial(first)
      yield* old.until((talk) => talk.closed)
      yield* proxy.setRoute({ appId, hostnames: [], target })
      const closed = yield* dial(second)
      yield* closed.until((talk) => talk.closed)
      assert.deepStrictEqual([old.errorCode, closed.errorCode], ["ECONNREFUSED", "ECONNREFUSED"])
    })
  )

  it.live("that is taken does not keep the hostnames from working, and opens once it is free", () =>
    Effect.gen(function* () {
      const app = yield* echo
      const { proxy, target, port } = yield* proxyTo(app.port)
      const held = yield* heldPort
      yield* proxy.setRoute({ appId, hostnames: ["app.test"], target, hostPort: held.port })
      assert.match(
        yield* answerOf(yield* dial(port), "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"),
        /^HTTP\/1\.1 200 /u
      )
      yield* held.release
      const answer = Effect.scoped(
        Effect.gen(function* () {
          const talk = yield* dial(held.port)
          talk.write(anyHost)
          yield* talk.until((talk) => talk.closed || talk.text.includes("\r\n\r\n"))
          return talk.take()
        })
      )
      assert.match(yield* eventually(answer, (text) => text !== ""), /^HTTP\/1\.1 200 /u)
    })
  )

  it.live("that is taken is told until it opens, or until it is no longer wanted", () =>
    Effect.gen(function* () {
      const { proxy } = yield* startProxy()
      const target = { kind: "unavailable", reason: "stopped" } as const
      const refused = SubscriptionRef.get(proxy.refusedPorts)
      const held = yield* heldPort
      yield* proxy.setRoute({ appId, hostnames: [], target, hostPort: held.port })
      const told = new Map([
        [
          appId,
          [
            `its own port cannot be reached: 127.0.0.1 port ${held.port} cannot be listened on: another program listens there`
          ]
        ]
      ])
      assert.deepStrictEqual(yield* refused, told)
      yield* proxy.removeRoute(appId)
      assert.deepStrictEqual(yield* refused, new Map())
      yield* proxy.setRoute({ appId, hostnames: [], target, hostPort: held.port })
      assert.deepStrictEqual(yield* refused, told)
      yield* held.release
      yield* eventually(refused, ({ size }) => size === 0)
      assert.match(yield* answerOf(yield* dial(held.port), anyHost), /^HTTP\/1\.1 503 /u)
    })
  )

  it.live("is given to the next app as soon as the last one's route has gone", () =>
    Effect.gen(function* () {
      const { proxy } = yield* startProxy()
      const hostPort = yield* freePort
      for (let round = 0; round < 20; round++) {
        const target = { kind: "unavailable", reason: `round ${round}` } as const
        yield* proxy.setRoute({ appId, hostnames: [], target, hostPort })
        const talk = yield* dial(hostPort)
        talk.write(anyHost)
        assert.include(yield* talk.rest, `round ${round}`)
        yield* proxy.removeRoute(appId)
      }
    })
  )
})

describe("a caller that keeps the proxy waiting", () => {
  it.live("with the rest of a head is answered with 408", () =>
    Effect.gen(function* () {
      const { port } = yield* startProxy({ head: 50, sweep: 20 })
      const talk = yield* dial(port)
      talk.write("GET / HTTP/1.1\r\nHost:")
      assert.match(yield* talk.rest, /^HTTP\/1\.1 408 /u)
    })
  )

  it.live("with a head that drips is cut off at the same time", () =>
    Effect.gen(function* () {
      const { port } = yield* startProxy({ head: 200, sweep: 20 })
      const talk = yield* dial(port)
      talk.write("GET / HTTP/1.1\r\n")
      const drip = Effect.sync(() => talk.write("a: b\r\n")).pipe(
        Effect.andThen(Effect.sleep(20)),
        Effect.forever
      )
      const answer = yield* talk.rest.pipe(Effect.raceFirst(drip))
      assert.match(String(answer), /^HTTP\/1\.1 408 /u)
    })
  )

  it.live("with its first byte, or its next request, is closed without a word", () =>
    Effect.gen(function* () {
      const app = yield* echo
      const { port } = yield* proxyTo(app.port, { head: 50, keepAlive: 50, sweep: 20 })
      assert.strictEqual(yield* (yield* dial(port)).rest, "")
      const talk = yield* dial(port)
      assert.match(yield* answerOf(talk, "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"), /^HTTP\/1\.1 200 /u)
      assert.strictEqual(yield* talk.rest, "")
    })
  )

  it.live("with a body, or with reading an answer, is waited for as long as it takes", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { port } = yield* proxyTo(app.port, {
        head: 50,
        keepAlive: 50,
        linger: 50,
        upstreamIdle: 50,
        sweep: 20
      })
      const talk = yield* dial(port)
      talk.write("PUT / HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\nContent-Length: 10\r\n\r\nhello")
      const connection = yield* app.connection(0)
      yield* connection.through("hello")
      yield* Effect.sleep(200)
      talk.write("world")
      yield* connection.through("world")
      yield* Effect.sleep(200)
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
      yield* Effect.sleep(200)
      connection.write("k")
      assert.match(yield* talk.rest, /ok$/u)
    })
  )
})
