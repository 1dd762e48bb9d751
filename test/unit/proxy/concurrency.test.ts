import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { AppId } from "../../../src/document/schema.ts"
import { appId, dial, eventually, listenRaw, openRequests, startProxy } from "./harness.ts"

const other = AppId.make("app-2")
const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

/** Two apps, of which the first has two hostnames. */
const bounded = (concurrency: { host: number; app: number }) =>
  Effect.gen(function* () {
    const app = yield* listenRaw()
    const { port, proxy } = yield* startProxy({}, { concurrency })
    const target = { kind: "up", host: "127.0.0.1", port: app.port } as const
    yield* proxy.setRoute({ appId, hostnames: ["app.test", "alias.test"], target })
    yield* proxy.setRoute({ appId: other, hostnames: ["other.test"], target })
    const ask = (host: string, head = "", body = "") =>
      Effect.gen(function* () {
        const caller = yield* dial(port)
        caller.write(`POST / HTTP/1.1\r\nHost: ${host}\r\n${head}\r\n${body}`)
        return caller
      })
    /** The answer to one more request. */
    const probe = (host: string) =>
      Effect.gen(function* () {
        const caller = yield* ask(host, "Content-Length: 0\r\n")
        return yield* caller.head
      })
    return { app, port, proxy, ask, probe, target }
  })

const busy = (answer: string) => {
  assert.match(answer, /^HTTP\/1\.1 503 /u)
  assert.include(answer, "\r\nretry-after: 1\r\n")
}

describe("requests beyond what may be open", () => {
  it.live("to one app are answered at once with 503 and Retry-After, under whichever of its hostnames", () =>
    Effect.gen(function* () {
      const { app, proxy, ask, probe } = yield* bounded({ host: 100, app: 2 })
      const first = yield* ask("app.test")
      yield* ask("alias.test")
      yield* eventually(openRequests(proxy), (open) => open === 2)
      busy(yield* probe("app.test"))
      busy(yield* probe("alias.test"))
      const caller = yield* ask("other.test")
      const third = yield* app.connection(2)
      yield* third.head
      third.write(ok)
      yield* caller.through("ok")
      const answered = yield* app.connection(0)
      answered.write(ok)
      yield* first.through("ok")
      yield* ask("app.test")
      yield* eventually(openRequests(proxy), (open) => open === 2)
      const { outcomes, apps } = yield* proxy.traffic
      assert.deepInclude(outcomes, { refused: 2, served: 2 })
      assert.include(apps.get(appId), { refused: 2, routed: 3 })
    })
  )

  it.live("to the host are answered with 503 whichever app they are for", () =>
    Effect.gen(function* () {
      const { proxy, ask, probe } = yield* bounded({ host: 2, app: 2 })
      yield* ask("app.test")
      yield* ask("other.test")
      yield* eventually(openRequests(proxy), (open) => open === 1)
      busy(yield* probe("app.test"))
      busy(yield* probe("other.test"))
      assert.match(yield* probe("unknown.test"), /^HTTP\/1\.1 404 /u)
    })
  )

  it.live("count uploads, streams and upgraded connections until both sides have ended", () =>
    Effect.gen(function* () {
      const { app, proxy, ask, probe } = yield* bounded({ host: 100, app: 1 })
      const upload = yield* ask("app.test", "Content-Length: 4\r\n", "ab")
      const connection = yield* app.connection(0)
      yield* connection.through("ab")
      busy(yield* probe("app.test"))
      upload.write("cd")
      yield* connection.through("cd")
      connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
      yield* upload.through("ok")
      busy(yield* probe("app.test"))
      connection.write("0\r\n\r\n")
      yield* eventually(openRequests(proxy), (open) => open === 0)

      const tunnel = yield* ask("app.test", "Connection: upgrade\r\nUpgrade: x\r\n")
      yield* connection.head
      connection.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
      yield* tunnel.head
      busy(yield* probe("app.test"))
      tunnel.socket.end()
      yield* connection.until((talk) => talk.ended)
      busy(yield* probe("app.test"))
      connection.socket.end()
      yield* eventually(openRequests(proxy), (open) => open === 0)
      yield* ask("app.test")
      yield* eventually(openRequests(proxy), (open) => open === 1)
    })
  )

  it.live("count those that wait for a wake, and give back what a caller that leaves has held", () =>
    Effect.gen(function* () {
      const { proxy, ask, probe } = yield* bounded({ host: 100, app: 1 })
      yield* proxy.setRoute({
        appId,
        hostnames: ["app.test"],
        target: { kind: "asleep", wake: Effect.never }
      })
      const first = yield* ask("app.test")
      yield* eventually(openRequests(proxy), (open) => open === 1)
      busy(yield* probe("app.test"))
      first.socket.resetAndDestroy()
      yield* eventually(openRequests(proxy), (open) => open === 0)
      yield* ask("app.test")
      yield* eventually(openRequests(proxy), (open) => open === 1)
    })
  )

  it.live("are still counted for an app whose route was removed and set again", () =>
    Effect.gen(function* () {
      const { proxy, ask, probe, target } = yield* bounded({ host: 100, app: 1 })
      yield* ask("app.test")
      yield* eventually(openRequests(proxy), (open) => open === 1)
      yield* proxy.removeRoute(appId)
      yield* proxy.setRoute({ appId, hostnames: ["app.test"], target })
      busy(yield* probe("app.test"))
    })
  )
})
