/** Connections of clients and the sleep of the app that they lead to: WebSockets, and keep-alive. */
import { once } from "node:events"
import * as http from "node:http"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { WebSocket } from "ws"
import type { LocalHost } from "../../scripts/local/host.ts"
import { sleepNow } from "../../scripts/local/sleep.ts"
import { awaitState, documentOf, instance, put, request, startHost, vmmsOf } from "./harness.ts"

const deployed = Effect.gen(function* () {
  const { host, tenant } = yield* startHost()
  const onRequest = { desiredState: "on-request", activation: { sleepWhen: { kind: "never" } } }
  yield* put(host, documentOf(instance("app-1", tenant, onRequest)))
  yield* awaitState(host, "app-1", "running")
  return host
})

const remembered = (host: LocalHost) =>
  Effect.map(request(host, "app-1", "/remember"), ({ status, body }) => `${status} ${body.trim()}`)

/** A WebSocket to the app, once the app has accepted it. */
const openSocket = (host: LocalHost) =>
  Effect.acquireRelease(
    Effect.callback<WebSocket, Error>((resume) => {
      const socket = new WebSocket(`ws://127.0.0.1:${host.proxyPort}/websocket`, {
        headers: { host: "app-1.example.com" }
      })
      socket.once("open", () => resume(Effect.succeed(socket)))
      socket.once("error", (error) => resume(Effect.fail(error)))
      return Effect.sync(() => socket.terminate())
    }).pipe(Effect.timeout("60 seconds")),
    (socket) => Effect.sync(() => socket.terminate())
  )

const echoed = (socket: WebSocket, message: string | Buffer) =>
  Effect.promise(async () => {
    const answer = once(socket, "message")
    socket.send(message)
    const [bytes, binary] = await answer
    return binary ? (bytes as Buffer) : String(bytes)
  }).pipe(Effect.timeout("30 seconds"))

const closed = (socket: WebSocket) =>
  Effect.promise(async () => {
    const end = once(socket, "close")
    socket.close(1000, "enough")
    const [code, reason] = await end
    return `${code} ${reason}`
  }).pipe(Effect.timeout("30 seconds"))

/** One request through the agent, and the port that its connection came from. */
const onConnection = (host: LocalHost, agent: http.Agent, path: string) =>
  Effect.callback<{ readonly answer: string; readonly port: number | undefined }, Error>((resume) => {
    const sent = http.get(
      { host: "127.0.0.1", port: host.proxyPort, path, headers: { host: "app-1.example.com" }, agent },
      (response) => {
        const port = response.socket.localPort
        let body = ""
        response.on("data", (bytes: Buffer) => {
          body += bytes.toString()
        })
        response.on("end", () =>
          resume(Effect.succeed({ answer: `${response.statusCode} ${body.trim()}`, port }))
        )
      }
    )
    sent.on("error", (error) => resume(Effect.fail(error)))
    return Effect.sync(() => sent.destroy())
  }).pipe(Effect.timeout("60 seconds"))

layer(NodeServices.layer, { excludeTestServices: true })("a client's connection", (it) => {
  it.effect(
    "that is a WebSocket wakes its app, carries what is said, and keeps the app up while it is quiet",
    () =>
      Effect.gen(function* () {
        const host = yield* deployed
        assert.strictEqual(yield* remembered(host), "200 1")
        yield* sleepNow(host, "app-1")
        assert.deepStrictEqual(vmmsOf(host), [])

        const socket = yield* openSocket(host)
        assert.strictEqual(yield* echoed(socket, "said to one that slept"), "said to one that slept")
        const binary = Buffer.from(Array.from({ length: 40_000 }, (_, index) => index % 251))
        assert.deepStrictEqual(yield* echoed(socket, binary), binary)
        assert.strictEqual(yield* remembered(host), "200 2")

        const refused = yield* Effect.flip(sleepNow(host, "app-1"))
        assert.match(refused.message, /something is open/u)
        assert.strictEqual(yield* echoed(socket, "still here"), "still here")
        assert.strictEqual(yield* closed(socket), "1000 enough")

        yield* sleepNow(host, "app-1")
        assert.deepStrictEqual(vmmsOf(host), [])
        assert.strictEqual(yield* remembered(host), "200 3")
      })
  )

  it.effect("serves before and after a sleep, three times over, well within its keep-alive", () =>
    Effect.gen(function* () {
      const host = yield* deployed
      const agent = yield* Effect.acquireRelease(
        Effect.sync(() => new http.Agent({ keepAlive: true, maxSockets: 1 })),
        (agent) => Effect.sync(() => agent.destroy())
      )
      const first = yield* onConnection(host, agent, "/remember")
      assert.strictEqual(first.answer, "200 1")
      for (let round = 1; round <= 3; round++) {
        yield* sleepNow(host, "app-1")
        for (const count of [2 * round, 2 * round + 1]) {
          assert.deepStrictEqual(yield* onConnection(host, agent, "/remember"), {
            answer: `200 ${count}`,
            port: first.port
          })
        }
      }
    })
  )
})
