/** When apps go to sleep by themselves: the least that the document allows is a minute, waited for once, by all of them. */
import * as http from "node:http"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Clock, Effect, Fiber, Ref } from "effect"
import { WebSocket } from "ws"
import type { LocalHost } from "../../scripts/local/host.ts"
import { instanceOf, readReport } from "../../scripts/local/report.ts"
import { awaitState, document, instance, put, request, startHost, volume } from "./harness.ts"

const minute = 60_000
const drain = 30_000
/** How late a reading of the traffic, a sleep and the report of it may be on a busy machine. */
const slack = 25_000

const quietMinute = { sleepWhen: { kind: "traffic-idle", timeoutMs: minute } }
const oneMinute = { sleepWhen: { kind: "max-lifetime", ttlMs: minute } }

const apps = {
  busy: quietMinute,
  quiet: quietMinute,
  held: quietMinute,
  mortal: oneMinute
}

/** When the report first says that the app is asleep, ms since 1970. */
const fellAsleep = (host: LocalHost, appId: string) =>
  Effect.andThen(awaitState(host, appId, "idle"), Clock.currentTimeMillis)

/** A request whose answer comes in ten minutes; gives the time at which it ended without one. */
const openRequest = (host: LocalHost, appId: string) =>
  Effect.callback<number>((resume) => {
    const sent = http.get({
      host: "127.0.0.1",
      port: host.proxyPort,
      path: "/hang?ms=600000",
      headers: { host: `${appId}.example.com` },
      agent: false
    })
    sent.on("response", (response) => response.resume())
    sent.on("error", () => undefined)
    sent.on("close", () => resume(Clock.currentTimeMillis))
    return Effect.sync(() => sent.destroy())
  })

const openSocket = (host: LocalHost, appId: string) =>
  Effect.acquireRelease(
    Effect.callback<WebSocket, Error>((resume) => {
      const socket = new WebSocket(`ws://127.0.0.1:${host.proxyPort}/websocket`, {
        headers: { host: `${appId}.example.com` }
      })
      socket.once("open", () => resume(Effect.succeed(socket)))
      socket.once("error", (error) => resume(Effect.fail(error)))
    }).pipe(Effect.timeout("60 seconds")),
    (socket) => Effect.sync(() => socket.terminate())
  )

const stateOf = (host: LocalHost, appId: string) =>
  Effect.map(readReport(host), (report) => instanceOf(report, appId)?.state)

layer(NodeServices.layer, { excludeTestServices: true })("apps that sleep by themselves", (it) => {
  it.effect(
    "stay up for a request every other second and for a quiet WebSocket, and sleep after a quiet minute, or at the end of their lifetime and half a minute for what is open",
    () =>
      Effect.gen(function* () {
        const { host, tenant } = yield* startHost({ starts: 2 })
        const names = Object.keys(apps)
        yield* put(
          host,
          document(
            names.map((appId) => volume(appId)),
            Object.entries(apps).map(([appId, activation]) =>
              instance(appId, tenant, { desiredState: "on-request", activation })
            )
          )
        )
        for (const appId of names) yield* awaitState(host, appId, "running")
        for (const appId of names) {
          assert.strictEqual((yield* request(host, appId, "/remember")).body.trim(), "1")
        }
        const spokenTo = yield* Clock.currentTimeMillis
        const ended = yield* Effect.forkChild(openRequest(host, "mortal"), { startImmediately: true })
        const socket = yield* openSocket(host, "held")
        let dropped = false
        socket.once("close", () => {
          dropped = true
        })

        const readings = yield* Ref.make<ReadonlyArray<string>>([])
        const asking = yield* Effect.gen(function* () {
          const { status } = yield* request(host, "busy")
          const states = [yield* stateOf(host, "busy"), yield* stateOf(host, "held")]
          yield* Ref.update(readings, (before) => [...before, `${status} ${states.join(" ")}`])
          yield* Effect.sleep("2 seconds")
        }).pipe(Effect.forever, Effect.forkChild)

        const quietFor = (yield* fellAsleep(host, "quiet")) - spokenTo
        assert.isAtLeast(quietFor, minute)
        assert.isBelow(quietFor, minute + slack)

        // Its lifetime began when it was started, some time before anybody spoke to it.
        const { startedAt } = yield* awaitState(host, "mortal", "running")
        const born = Date.parse(startedAt ?? "")
        const mortalFor = (yield* fellAsleep(host, "mortal")) - born
        assert.isAtLeast(mortalFor, minute + drain)
        assert.isBelow(mortalFor, minute + drain + slack)
        const requestEnded = yield* Fiber.join(ended)
        assert.isAtLeast(requestEnded - born, minute + drain)
        assert.strictEqual((yield* request(host, "mortal", "/remember")).body.trim(), "2")

        yield* Fiber.interrupt(asking)
        const seen = yield* Ref.get(readings)
        assert.isAbove(seen.length, 20)
        assert.deepStrictEqual([...new Set(seen)], ["200 running running"])
        assert.isFalse(dropped)
        assert.strictEqual((yield* request(host, "quiet", "/remember")).body.trim(), "2")
      })
  )
})
