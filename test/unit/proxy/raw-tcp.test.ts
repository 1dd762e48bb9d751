import { assert, describe, it } from "@effect/vitest"
import { Effect, SubscriptionRef } from "effect"
import { dial, eventually, freePort, heldPort, listenRaw, writeUntilStuck } from "./harness.ts"
import { openDatagrams, rawPort } from "./raw-harness.ts"
import { logged } from "./tls-harness.ts"

const big = Buffer.alloc(67_108_864, "0123456789abcdef")

/** A client and a guest that talk through a raw port. */
const connected = (options: Parameters<typeof rawPort>[1] = {}) =>
  Effect.gen(function* () {
    const guest = yield* listenRaw()
    const raw = yield* rawPort(guest.port, options)
    const client = yield* dial(raw.hostPort)
    const connection = yield* guest.connection(0)
    return { ...raw, guest, client, connection }
  })

describe("a connection to a raw port", () => {
  it.live("carries every byte both ways, and counts them", () =>
    Effect.gen(function* () {
      const { client, connection, app } = yield* connected()
      const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, index) => (index * 7) % 256))
      client.write(bytes)
      yield* connection.until(({ text }) => text.length === bytes.length)
      assert.strictEqual(connection.take(), bytes.toString("latin1"))
      connection.write("answer")
      yield* client.through("answer")
      assert.deepInclude(yield* app, { open: 1, held: 0, arrivals: 1, routed: 0 })
      assert.deepInclude((yield* app)?.tcp, { open: 1, relayed: 1, bytesIn: 100_000, bytesOut: 6 })
    })
  )

  it.live("begins with whichever side speaks first", () =>
    Effect.gen(function* () {
      const { client, connection } = yield* connected()
      connection.write("220 hello\r\n")
      yield* client.through("220 hello\r\n")
    })
  )

  it.live("stays half open in either direction for as long as the other side has something to say", () =>
    Effect.gen(function* () {
      const one = yield* connected()
      one.client.socket.end("question")
      assert.strictEqual(yield* one.connection.rest, "question")
      yield* Effect.sleep(200)
      one.connection.write("long ")
      yield* one.client.through("long ")
      one.connection.socket.end("answer")
      assert.strictEqual(yield* one.client.rest, "answer")
      yield* eventually(one.app, (app) => app?.open === 0)

      const other = yield* connected()
      other.connection.socket.end("that is all")
      assert.strictEqual(yield* other.client.rest, "that is all")
      yield* Effect.sleep(200)
      other.client.write("but ")
      yield* other.connection.through("but ")
      other.client.socket.end("still")
      assert.strictEqual(yield* other.connection.rest, "still")
      yield* eventually(other.app, (app) => app?.open === 0)
    })
  )

  it.live("is reset for one side when the other resets it", () =>
    Effect.gen(function* () {
      const one = yield* connected()
      one.client.socket.resetAndDestroy()
      yield* one.connection.until(({ closed }) => closed)
      assert.strictEqual(one.connection.errorCode, "ECONNRESET")
      yield* eventually(one.app, (app) => app?.open === 0)
      const other = yield* connected()
      other.connection.socket.resetAndDestroy()
      yield* other.client.until(({ closed }) => closed)
      assert.strictEqual(other.client.errorCode, "ECONNRESET")
      yield* eventually(other.app, (app) => app?.open === 0)
    })
  )

  it.live("is refused as the guest refuses it", () =>
    Effect.gen(function* () {
      const nobody = yield* freePort
      const { hostPort, app } = yield* rawPort(nobody)
      const client = yield* dial(hostPort)
      client.write("hello")
      yield* client.until(({ closed }) => closed)
      assert.strictEqual(client.errorCode, "ECONNRESET")
      assert.deepInclude((yield* app)?.tcp, { open: 0, relayed: 0, notTaken: 1 })
    })
  )

  it.live("keeps to the speed of who reads slower, both ways", () =>
    Effect.gen(function* () {
      const { client, connection } = yield* connected()
      for (const [from, to] of [
        [client, connection],
        [connection, client]
      ] as const) {
        to.socket.pause()
        assert.isBelow(yield* writeUntilStuck(from, big), big.length / 2)
        let seen = to.take().length
        to.absorb = (bytes) => {
          seen += bytes.length
        }
        to.socket.resume()
        yield* to.until(() => seen === big.length, "everything")
      }
    })
  )

  it.live(
    "ends after a long while without a byte when one side has ended, and never while both are open",
    () =>
      Effect.gen(function* () {
        const { client, connection, app } = yield* connected({ halfClosed: 1500 })
        yield* Effect.sleep(2000)
        client.socket.end("bye")
        yield* connection.through("bye")
        for (const word of ["one", "two", "three"]) {
          yield* Effect.sleep(600)
          connection.write(word)
          yield* client.through(word)
        }
        yield* eventually(app, (now) => now?.open === 0)
      })
  )

  it.live("lives on when the app's route changes, and is closed with the proxy", () =>
    Effect.gen(function* () {
      const { client, connection } = yield* Effect.scoped(
        Effect.gen(function* () {
          const session = yield* connected()
          yield* session.proxy.removeRoute(session.route.appId)
          session.client.write("still here")
          yield* session.connection.through("still here")
          return session
        })
      )
      yield* client.until(({ closed }) => closed)
      yield* connection.until(({ closed }) => closed)
    })
  )

  it.live("to an app that takes nothing is reset, and counted", () =>
    Effect.gen(function* () {
      const guest = yield* listenRaw()
      const { hostPort, proxy, route, app } = yield* rawPort(guest.port)
      yield* proxy.setRoute({ ...route, target: { kind: "unavailable", reason: "it is stopped" } })
      const client = yield* dial(hostPort)
      yield* client.until(({ closed }) => closed)
      assert.strictEqual(client.errorCode, "ECONNRESET")
      assert.deepInclude((yield* app)?.tcp, { open: 0, down: 1 })
      assert.strictEqual(guest.connections.length, 0)
    })
  )
})

describe("a connection to a raw port of an app that sleeps", () => {
  it.live("wakes it once for all that come, and what was sent meanwhile arrives", () =>
    Effect.gen(function* () {
      const guest = yield* listenRaw((talk) => {
        talk.socket.on("data", () => talk.write(`<${talk.take()}>`))
      })
      const raw = yield* rawPort(guest.port)
      const { asked, wake } = yield* raw.sleep
      const clients = yield* Effect.forEach(["a", "b", "c"], (word) =>
        Effect.map(dial(raw.hostPort), (client) => {
          client.write(word)
          return { client, word }
        })
      )
      yield* eventually(raw.app, (app) => app?.held === 3)
      clients[0]?.client.write("more")
      yield* Effect.sleep(100)
      assert.deepInclude(yield* raw.app, { open: 3, arrivals: 3 })
      assert.strictEqual(guest.connections.length, 0)
      yield* wake
      for (const { client, word } of clients) {
        yield* client.through(`<${word === "a" ? "amore" : word}>`)
      }
      assert.strictEqual(asked.count, 1)
      assert.deepInclude((yield* raw.app)?.tcp, { open: 3, relayed: 3, bytesIn: 7 })
    })
  )

  it.live("is not read further when it sends much, and loses nothing", () =>
    Effect.gen(function* () {
      const guest = yield* listenRaw()
      const raw = yield* rawPort(guest.port)
      const { wake } = yield* raw.sleep
      const client = yield* dial(raw.hostPort)
      assert.isBelow(yield* writeUntilStuck(client, big), big.length / 2)
      yield* wake
      const connection = yield* guest.connection(0)
      let seen = connection.take().length
      connection.absorb = (bytes) => {
        seen += bytes.length
      }
      yield* connection.until(() => seen === big.length, "everything")
    })
  )

  it.live("is carried to its end when the client has said all before the app is awake", () =>
    Effect.gen(function* () {
      const guest = yield* listenRaw()
      const raw = yield* rawPort(guest.port)
      const { wake } = yield* raw.sleep
      const client = yield* dial(raw.hostPort)
      client.socket.end("all of it")
      yield* eventually(raw.app, (app) => app?.held === 1)
      yield* Effect.sleep(100)
      yield* wake
      const connection = yield* guest.connection(0)
      assert.strictEqual(yield* connection.rest, "all of it")
      connection.socket.end("thanks")
      assert.strictEqual(yield* client.rest, "thanks")
      yield* eventually(raw.app, (app) => app?.open === 0)
    })
  )

  it.live("is tried again while the guest's program is not yet there, but not for ever", () =>
    Effect.gen(function* () {
      const { port, release } = yield* heldPort
      yield* release
      const raw = yield* rawPort(port, { settle: 2000, retry: 20 })
      const { wake } = yield* raw.sleep
      const client = yield* dial(raw.hostPort)
      client.write("early")
      yield* eventually(raw.app, (app) => app?.held === 1)
      yield* wake
      yield* Effect.sleep(200)
      assert.isFalse(client.closed)
      yield* client.until(({ closed }) => closed)
      assert.deepInclude((yield* raw.app)?.tcp, { open: 0, notTaken: 1, relayed: 0 })
    })
  )

  it.live("is reset when the app cannot be woken, and the next one asks again", () =>
    Effect.gen(function* () {
      const guest = yield* listenRaw()
      const raw = yield* rawPort(guest.port)
      const { asked, wakeTo } = yield* raw.sleep
      yield* wakeTo({ kind: "unavailable", reason: "no room" })
      for (const count of [1, 2]) {
        const client = yield* dial(raw.hostPort)
        yield* client.until(({ closed }) => closed)
        assert.strictEqual(client.errorCode, "ECONNRESET")
        assert.deepInclude((yield* raw.app)?.tcp, { open: 0, wakeRefused: count })
        assert.strictEqual(asked.count, count)
      }
    })
  )

  it.live("is forgotten when its client breaks it off", () =>
    Effect.gen(function* () {
      const guest = yield* listenRaw()
      const raw = yield* rawPort(guest.port)
      const { wake } = yield* raw.sleep
      const client = yield* dial(raw.hostPort)
      client.write("hello")
      yield* eventually(raw.app, (app) => app?.held === 1)
      client.socket.resetAndDestroy()
      yield* eventually(raw.app, (app) => app?.open === 0 && app.held === 0)
      yield* wake
      yield* Effect.sleep(100)
      assert.strictEqual(guest.connections.length, 0)
    })
  )

  it.live("goes where the route says that is set meanwhile", () =>
    Effect.gen(function* () {
      const guest = yield* listenRaw()
      const raw = yield* rawPort(guest.port)
      yield* raw.sleep
      const first = yield* dial(raw.hostPort)
      first.write("first")
      yield* eventually(raw.app, (app) => app?.held === 1)
      yield* raw.proxy.setRoute({ ...raw.route, target: raw.up })
      yield* (yield* guest.connection(0)).through("first")
      yield* raw.sleep
      const second = yield* dial(raw.hostPort)
      yield* eventually(raw.app, (app) => app?.held === 1)
      yield* raw.proxy.removeRoute(raw.route.appId)
      yield* second.until(({ closed }) => closed)
    })
  )
})

describe("the raw ports of an app", () => {
  it.live("are opened and closed as its route says, those that stay untouched", () =>
    Effect.gen(function* () {
      const guest = yield* listenRaw((talk) => talk.write("hello"))
      const { hostPort, proxy, route, up } = yield* rawPort(guest.port)
      const second = { name: "two", hostPort: yield* freePort, guestPort: guest.port }
      const refused = (port: number) =>
        Effect.scoped(
          Effect.flatMap(dial(port), (client) =>
            Effect.map(
              client.until(({ closed }) => closed),
              () => client.errorCode
            )
          )
        )
      const answers = (port: number) =>
        Effect.scoped(Effect.flatMap(dial(port), (client) => client.through("hello")))
      yield* proxy.setRoute({ ...route, target: up, rawPorts: [...route.rawPorts, second] })
      yield* answers(hostPort)
      yield* answers(second.hostPort)
      yield* proxy.setRoute({ ...route, target: up, rawPorts: [second] })
      assert.strictEqual(yield* refused(hostPort), "ECONNREFUSED")
      yield* answers(second.hostPort)
      yield* proxy.setRoute({ appId: route.appId, hostnames: [], target: up })
      assert.strictEqual(yield* refused(second.hostPort), "ECONNREFUSED")
      yield* proxy.setRoute({ ...route, target: up })
      yield* answers(hostPort)
      yield* proxy.removeRoute(route.appId)
      assert.strictEqual(yield* refused(hostPort), "ECONNREFUSED")
    })
  )

  it.live("that are taken by another program are said by name, and opened once they are free", () =>
    Effect.gen(function* () {
      const { lines, layer } = logged()
      const guest = yield* listenRaw((talk) => talk.write("hello"))
      const { port, release } = yield* heldPort
      const { proxy, route, up } = yield* rawPort(guest.port).pipe(Effect.provide(layer))
      yield* proxy
        .setRoute({
          ...route,
          target: up,
          rawPorts: [{ name: "echo", hostPort: port, guestPort: guest.port }]
        })
        .pipe(Effect.provide(layer))
      assert.match(
        lines.join("\n"),
        new RegExp(
          `^Warn port echo of app app-1 cannot be reached: 127\\.0\\.0\\.1 port ${port} cannot be listened on: another program listens there; [^\\n]*$`,
          "u"
        )
      )
      const told = SubscriptionRef.get(proxy.refusedPorts)
      assert.deepStrictEqual(
        yield* told,
        new Map([
          [
            route.appId,
            [
              `its port echo cannot be reached: 127.0.0.1 port ${port} cannot be listened on: another program listens there`
            ]
          ]
        ])
      )
      yield* release
      yield* eventually(told, ({ size }) => size === 0)
      assert.strictEqual(lines.at(-1), `Info port echo of app app-1 is open now: ${port}`)
      yield* eventually(
        Effect.scoped(
          Effect.flatMap(dial(port), (client) =>
            Effect.map(
              client.until(({ closed, text }) => closed || text !== ""),
              () => client.text
            )
          )
        ),
        (text) => text === "hello"
      )
    })
  )

  it.live("that are taken for UDP alone carry TCP, and are told until the route goes", () =>
    Effect.gen(function* () {
      const guest = yield* listenRaw((talk) => talk.write("hello"))
      const taken = yield* openDatagrams()
      const { proxy, route, up } = yield* rawPort(guest.port)
      yield* proxy.setRoute({
        ...route,
        target: up,
        rawPorts: [{ name: "echo", hostPort: taken.port, guestPort: guest.port }]
      })
      const told = SubscriptionRef.get(proxy.refusedPorts)
      assert.deepStrictEqual(
        yield* told,
        new Map([
          [
            route.appId,
            [
              `its port echo cannot be reached: 127.0.0.1 UDP port ${taken.port} cannot be listened on: another program listens there`
            ]
          ]
        ])
      )
      const client = yield* dial(taken.port)
      yield* client.through("hello")
      yield* proxy.setRoute({ ...route, target: up, rawPorts: [] })
      assert.deepStrictEqual(yield* told, new Map())
    })
  )
})
