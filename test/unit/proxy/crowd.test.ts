import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { WebSocket as WsClient } from "ws"
import type { ProxyOptions } from "../../../layers/proxy/layer.ts"
import { makeCertificate } from "./certificates.ts"
import {
  appId,
  dial,
  eventually,
  freePort,
  listenRaw,
  openRequests,
  startProxy,
  type Talk
} from "./harness.ts"
import { authority, dialSecure, logged, stored } from "./tls-harness.ts"

const get = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"
const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/** An app that answers at once, but keeps requests for /wait. */
const app = listenRaw((talk) =>
  talk.socket.on("data", () => {
    if (!talk.take().startsWith("GET /wait")) talk.write(ok)
  })
)

const crowded = (callers: number, options: ProxyOptions = {}) =>
  Effect.gen(function* () {
    const { port: guest } = yield* app
    const started = yield* startProxy({}, { callers, ...options })
    const target = { kind: "up", host: "127.0.0.1", port: guest } as const
    yield* started.proxy.setRoute({ appId, hostnames: ["app.test"], target })
    return { ...started, target }
  })

const connected = (port: number) =>
  Effect.tap(dial(port), (talk) => talk.until(({ socket }) => !socket.connecting, "a connection"))

const many = (count: number, port: number) => Effect.all(Array.from({ length: count }, () => connected(port)))

const answered = (talk: Talk) =>
  Effect.suspend(() => {
    talk.write(get)
    return talk.through("ok")
  })

describe("callers without number", () => {
  it.live("who say nothing keep nobody from being answered, and are still there when there is room", () =>
    Effect.gen(function* () {
      const { port, proxy } = yield* crowded(10_000)
      const silent = yield* many(2_000, port)
      for (let round = 0; round < 20; round++) {
        assert.match(yield* answered(yield* dial(port)), /^HTTP\/1\.1 200 /u)
      }
      const last = silent.at(-1)
      assert.isDefined(last)
      assert.match(yield* answered(last as Talk), /^HTTP\/1\.1 200 /u)
      assert.isFalse(silent.some(({ closed }) => closed))
      assert.strictEqual(yield* openRequests(proxy), 0)
    })
  )

  it.live("who say nothing, or only the beginning, make room for new ones, the oldest first", () =>
    Effect.gen(function* () {
      const log = logged()
      yield* Effect.gen(function* () {
        const { port } = yield* crowded(64)
        const first = yield* dial(port)
        first.write("GET / HTTP/1.1\r\nHost: app")
        const silent = yield* many(40, port)
        const later = yield* many(200, port)
        yield* first.until(({ closed, ended }) => closed || ended)
        for (const talk of silent) yield* talk.until(({ closed, ended }) => closed || ended)
        const newest = later.at(-1) as Talk
        assert.match(yield* answered(newest), /^HTTP\/1\.1 200 /u)
        assert.match(yield* answered(yield* dial(port)), /^HTTP\/1\.1 200 /u)
      }).pipe(Effect.provide(log.layer))
      assert.lengthOf(
        log.lines.filter((line) => line.includes("has 64 connections of callers")),
        1
      )
    })
  )

  it.live("never take the place of one who has asked, and are turned away when all have", () =>
    Effect.gen(function* () {
      const { port, proxy } = yield* crowded(8)
      const asking = yield* many(8, port)
      for (const talk of asking) talk.write("GET /wait HTTP/1.1\r\nHost: app.test\r\n\r\n")
      yield* eventually(openRequests(proxy), (open) => open === 8)
      const one = yield* dial(port)
      one.write(get)
      yield* one.until(({ closed, ended }) => closed || ended)
      assert.strictEqual(one.text, "")
      assert.strictEqual(yield* openRequests(proxy), 8)
      asking[0]?.socket.resetAndDestroy()
      yield* eventually(openRequests(proxy), (open) => open === 7)
      assert.match(yield* answered(yield* dial(port)), /^HTTP\/1\.1 200 /u)
    })
  )

  it.live("make room under TLS in the middle of their handshakes and after", () =>
    Effect.gen(function* () {
      const tls = yield* stored(makeCertificate(["app.test"], authority))
      const { port, proxy } = yield* crowded(32, { tls })
      const options = { headers: { host: "app.test" }, ca: authority.certificate, servername: "app.test" }
      const open = new WsClient(`wss://127.0.0.1:${port}/wait`, options)
      yield* Effect.addFinalizer(() => Effect.sync(() => open.terminate()))
      open.on("error", () => undefined)
      yield* eventually(openRequests(proxy), (count) => count === 1)
      const silent = yield* many(31, port)
      for (let round = 0; round < 40; round++) {
        const talk = yield* dialSecure(port)
        assert.match(yield* answered(talk), /^HTTP\/1\.1 200 /u)
      }
      yield* (silent[0] as Talk).until(({ closed, ended }) => closed || ended)
      assert.strictEqual(yield* openRequests(proxy), 1)
    })
  )

  it.live("to raw ports are refused beyond what one app, or the host, may have", () =>
    Effect.gen(function* () {
      const guest = yield* listenRaw()
      const hostPort = yield* freePort
      const { proxy, target } = yield* crowded(1_000, {
        raw: { address: "127.0.0.1" },
        rawLimits: { tcpSessionsOfHost: 100, tcpSessionsOfApp: 3 }
      })
      yield* proxy.setRoute({
        appId,
        hostnames: [],
        target,
        rawPorts: [{ name: "raw", hostPort, guestPort: guest.port }]
      })
      const kept = yield* many(3, hostPort)
      yield* guest.connection(2)
      const refused = yield* dial(hostPort)
      yield* refused.until(({ closed }) => closed)
      assert.strictEqual(refused.errorCode, "ECONNRESET")
      const tcp = Effect.map(proxy.traffic, ({ apps }) => apps.get(appId)?.tcp)
      assert.include(yield* tcp, { open: 3, relayed: 3, dropped: 1 })
      kept[0]?.socket.resetAndDestroy()
      yield* eventually(tcp, (counts) => counts?.open === 2)
      yield* connected(hostPort)
      yield* guest.connection(3)
    })
  )
})
