import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { AsleepTarget, UpTarget } from "../../../src/services/Proxy.ts"
import { appId, dial, eventually, freePort, listenRaw, openRequests, proxyTo, startProxy } from "./harness.ts"

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
const get = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"

/** How many connections the kernel completes for a server that has this backlog and accepts none. */
const BACKLOG = 1
const COMPLETED = BACKLOG + 1

/** A port on which connecting takes for ever, like that of a guest that is paused. */
const pausedPort = Effect.gen(function* () {
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(
        process.execPath,
        [
          "-e",
          `const server = require("node:net").createServer()
           server.listen({ port: 0, host: "127.0.0.1", backlog: ${BACKLOG} }, () => console.log(server.address().port))`
        ],
        { stdio: ["ignore", "pipe", "inherit"] }
      )
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )
  const port = yield* Effect.callback<number>((resume) => {
    child.stdout.once("data", (text: Buffer) => resume(Effect.succeed(Number(text.toString()))))
  })
  child.kill("SIGSTOP")
  const state = Effect.sync(() => readFileSync(`/proc/${child.pid}/stat`, "latin1").split(") ")[1]?.[0])
  yield* eventually(state, (letter) => letter === "T")
  for (let count = 0; count < COMPLETED; count++) {
    const filler = yield* dial(port)
    yield* filler.until(({ socket }) => !socket.connecting, "a place in the backlog")
  }
  return port
})

const target = (port: number): UpTarget => ({ kind: "up", host: "127.0.0.1", port })
const asleepUntil = (up: UpTarget): AsleepTarget => ({ kind: "asleep", wake: Effect.succeed(up) })

/** The states of this machine's connections to the port, as the kernel's timers see them. */
const timersTo = (port: number) =>
  Effect.sync(() => {
    const remote = `:${port.toString(16).toUpperCase().padStart(4, "0")}`
    return readFileSync("/proc/net/tcp", "latin1")
      .split("\n")
      .map((line) => line.trim().split(/\s+/u))
      .filter(([, , to, state]) => to?.endsWith(remote) === true && state === "01")
      .map((columns) => columns[5]?.split(":")[0])
  })

/** Of the kernel: the connection has a keepalive timer, and nothing to send. */
const KEEPALIVE = "02"

describe("an app whose microVM has ended", () => {
  it.live("breaks off what it was answering, and its tunnels", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { port, proxy, target: up } = yield* proxyTo(app.port)
      const reader = yield* dial(port)
      reader.write(get)
      const answering = yield* app.connection(0)
      yield* answering.head
      answering.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
      yield* reader.through("half")
      const upgraded = yield* dial(port)
      upgraded.write("GET / HTTP/1.1\r\nHost: app.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
      const tunnel = yield* app.connection(1)
      yield* tunnel.head
      tunnel.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
      yield* upgraded.head
      const waiting = yield* dial(port)
      waiting.write(get)
      yield* (yield* app.connection(2)).head
      assert.strictEqual(yield* openRequests(proxy), 3)

      yield* proxy.setRoute({ appId, hostnames: ["app.test"], target: asleepUntil(up as UpTarget) })
      yield* proxy.endConnections(appId)
      assert.strictEqual(yield* openRequests(proxy), 0)
      for (const caller of [reader, upgraded]) {
        yield* caller.until(({ closed }) => closed)
        assert.strictEqual(caller.errorCode, "ECONNRESET")
      }
      assert.match(yield* waiting.head, /^HTTP\/1\.1 502 /u)
      assert.lengthOf(app.connections, 3)
    })
  )

  it.live("has its unused connections closed too", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { port, proxy } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      caller.write(get)
      const pooled = yield* app.connection(0)
      yield* pooled.head
      pooled.write(ok)
      yield* caller.through("ok")
      yield* proxy.endConnections(appId)
      yield* pooled.until(({ ended }) => ended)
      caller.write(get)
      yield* (yield* app.connection(1)).head
    })
  )

  it.live("before it has taken a request's connection gets that request in its next life, once", () =>
    Effect.gen(function* () {
      const paused = yield* pausedPort
      const app = yield* listenRaw()
      const { port, proxy } = yield* proxyTo(paused)
      const caller = yield* dial(port)
      caller.write("POST /p HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\nhello")
      yield* eventually(openRequests(proxy), (open) => open === 1)
      yield* proxy.setRoute({
        appId,
        hostnames: ["app.test"],
        target: asleepUntil(target(app.port))
      })
      yield* proxy.endConnections(appId)
      const next = yield* app.connection(0)
      assert.match(yield* next.head, /^POST \/p /u)
      caller.write("world")
      yield* next.through("helloworld")
      next.write(ok)
      assert.match(yield* caller.through("ok"), /^HTTP\/1\.1 200 /u)
      assert.lengthOf(app.connections, 1)
      assert.include((yield* proxy.traffic).apps.get(appId), { open: 0, routed: 1, unreachable: 0 })
    })
  )

  it.live("before it has taken a raw connection leaves it waiting for its next life", () =>
    Effect.gen(function* () {
      const paused = yield* pausedPort
      const { proxy } = yield* startProxy({}, { raw: { address: "127.0.0.1" } })
      const hostPort = yield* freePort
      const route = { appId, hostnames: [], rawPorts: [{ name: "echo", hostPort, guestPort: paused }] }
      yield* proxy.setRoute({ ...route, target: target(1) })
      const client = yield* dial(hostPort)
      client.write("first")
      yield* eventually(openRequests(proxy), (open) => open === 1)
      yield* proxy.setRoute({ ...route, target: { kind: "asleep", wake: Effect.never } })
      yield* proxy.endConnections(appId)
      assert.include((yield* proxy.traffic).apps.get(appId), { open: 1, held: 1 })
      assert.isFalse(client.closed)
      yield* proxy.endConnections(appId)
      assert.include((yield* proxy.traffic).apps.get(appId), { open: 1, held: 1 })
    })
  )
})

describe("a connection to an app that says nothing", () => {
  it.live("is asked after by the kernel, for an app that is gone without a word", () =>
    Effect.gen(function* () {
      const app = yield* listenRaw()
      const { port } = yield* proxyTo(app.port)
      const caller = yield* dial(port)
      caller.write(get)
      yield* (yield* app.connection(0)).head
      yield* eventually(timersTo(app.port), (timers) => timers.length === 1 && timers[0] === KEEPALIVE)
    })
  )
})
