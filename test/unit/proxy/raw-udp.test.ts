import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import fc from "fast-check"
import { AppId } from "../../../src/document/schema.ts"
import type { DatagramPath } from "../../../src/services/Proxy.ts"
import { eventually, freePort } from "./harness.ts"
import { openDatagrams, rawPort } from "./raw-harness.ts"

/** A guest that answers each datagram. */
const echo = openDatagrams(0, (text, answer) => answer(`<${text}>`))

describe("a datagram to a raw port", () => {
  it.live("reaches the guest, whose answer reaches the client, and both are counted", () =>
    Effect.gen(function* () {
      const guest = yield* echo
      const { hostPort, app } = yield* rawPort(guest.port)
      const client = yield* openDatagrams()
      client.send("one", hostPort)
      assert.strictEqual(yield* client.datagram(0), "<one>")
      client.send("two", hostPort)
      assert.strictEqual(yield* client.datagram(1), "<two>")
      assert.deepStrictEqual(
        client.senders.map(({ port }) => port),
        [hostPort, hostPort]
      )
      assert.deepInclude(yield* app, { open: 0, arrivals: 2 })
      assert.deepInclude((yield* app)?.udp, { open: 1, relayed: 1, bytesIn: 6, bytesOut: 10 })
    })
  )

  it.live("may be as large as a datagram can be, or empty", () =>
    Effect.gen(function* () {
      const guest = yield* openDatagrams()
      const { hostPort } = yield* rawPort(guest.port)
      const client = yield* openDatagrams()
      client.send("x".repeat(65_507), hostPort)
      assert.strictEqual((yield* guest.datagram(0)).length, 65_507)
      client.send("", hostPort)
      assert.strictEqual(yield* guest.datagram(1), "")
    })
  )

  it.live("of one client is answered to that client, however many there are", () =>
    Effect.gen(function* () {
      const guest = yield* echo
      const { hostPort, app } = yield* rawPort(guest.port)
      const clients = yield* Effect.forEach(Array.from({ length: 20 }), () => openDatagrams())
      for (const [index, client] of clients.entries()) client.send(`${index}`, hostPort)
      for (const [index, client] of clients.entries()) {
        assert.strictEqual(yield* client.datagram(0), `<${index}>`)
      }
      assert.strictEqual((yield* app)?.udp.open, 20)
      assert.strictEqual(new Set(guest.senders.map(({ port }) => port)).size, 20)
    })
  )

  it.live("reaches no client but through the guest's own port", () =>
    Effect.gen(function* () {
      const guest = yield* openDatagrams()
      const stranger = yield* openDatagrams()
      const { hostPort } = yield* rawPort(guest.port)
      const client = yield* openDatagrams()
      client.send("hello", hostPort)
      yield* guest.datagram(0)
      const through = guest.senders[0]?.port ?? 0
      stranger.send("not from the guest", through)
      guest.send("from the guest", through)
      assert.strictEqual(yield* client.datagram(0), "from the guest")
      assert.strictEqual(client.received.length, 1)
    })
  )

  it.live(
    "begins a session that ends after a minute without another, whichever side it would have come from",
    () =>
      Effect.gen(function* () {
        const guest = yield* openDatagrams()
        const { hostPort, app } = yield* rawPort(guest.port, { udpIdle: 1500 })
        const client = yield* openDatagrams()
        client.send("one", hostPort)
        yield* guest.datagram(0)
        for (let round = 0; round < 4; round++) {
          yield* Effect.sleep(150)
          guest.send(`${round}`, guest.senders[0]?.port ?? 0)
          yield* client.datagram(round)
        }
        assert.strictEqual((yield* app)?.udp.open, 1)
        yield* eventually(app, (now) => now?.udp.open === 0)
        client.send("two", hostPort)
        yield* guest.datagram(1)
        assert.notStrictEqual(guest.senders[0]?.port, guest.senders[1]?.port)
      })
  )

  it.live("that the guest refuses ends its session, and the next one is tried anew", () =>
    Effect.gen(function* () {
      const nobody = yield* freePort
      const { hostPort, app } = yield* rawPort(nobody)
      const client = yield* openDatagrams()
      client.send("one", hostPort)
      yield* eventually(app, (now) => now?.udp.notTaken === 1)
      const guest = yield* openDatagrams(nobody, (text, answer) => answer(`<${text}>`))
      client.send("two", hostPort)
      assert.strictEqual(yield* client.datagram(0), "<two>")
      assert.deepStrictEqual(guest.received, ["two"])
    })
  )

  it.live("to an app that takes nothing is dropped and counted", () =>
    Effect.gen(function* () {
      const guest = yield* openDatagrams()
      const { hostPort, app, proxy, route } = yield* rawPort(guest.port)
      yield* proxy.setRoute({ ...route, target: { kind: "unavailable", reason: "it is stopped" } })
      const client = yield* openDatagrams()
      client.send("one", hostPort)
      yield* eventually(app, (now) => now?.udp.down === 1)
      assert.deepInclude(yield* app, { open: 0, arrivals: 1 })
    })
  )

  it.live("of ever new clients takes the place of who was quiet for the longest", () =>
    Effect.gen(function* () {
      const guest = yield* openDatagrams()
      const { hostPort, app } = yield* rawPort(guest.port)
      const steady = yield* openDatagrams()
      steady.send("steady", hostPort)
      yield* guest.datagram(0)
      const first = guest.senders[0]?.port ?? 0
      for (let batch = 0; batch < 12; batch++) {
        yield* Effect.scoped(
          Effect.gen(function* () {
            for (let index = 0; index < 100; index++) {
              const client = yield* openDatagrams()
              client.send("flood", hostPort)
              yield* guest.datagram(guest.received.length)
            }
          })
        )
        steady.send("still", hostPort)
        yield* guest.datagram(guest.received.length)
      }
      assert.isAtMost((yield* app)?.udp.open ?? 0, 1024)
      assert.isAbove((yield* app)?.udp.relayed ?? 0, 100)
      guest.send("to steady", first)
      assert.strictEqual(yield* steady.datagram(0), "to steady")
    })
  )

  it.live(
    "of a new client finds a place on a host that is full, at the cost of the app with the most clients",
    () =>
      Effect.gen(function* () {
        const guest = yield* echo
        const raw = yield* rawPort(guest.port, {}, { udpSessionsOfHost: 20 })
        const flood = yield* Effect.forEach(Array.from({ length: 19 }), () => openDatagrams())
        for (const [index, client] of flood.entries()) {
          client.send("flood", raw.hostPort)
          yield* guest.datagram(index)
        }
        const hostPort = yield* freePort
        const other = AppId.make("other")
        yield* raw.proxy.setRoute({
          appId: other,
          hostnames: [],
          target: raw.up,
          rawPorts: [{ name: "echo", hostPort, guestPort: guest.port }]
        })
        for (let index = 0; index < 4; index++) {
          const client = yield* openDatagrams()
          client.send("new", hostPort)
          assert.strictEqual(yield* client.datagram(0), "<new>")
        }
        const { apps } = yield* raw.proxy.traffic
        assert.strictEqual(apps.get(other)?.udp.open, 4)
        assert.strictEqual((yield* raw.app)?.udp.open, 16)
        assert.strictEqual(apps.get(other)?.udp.dropped, 0)
      })
  )

  it.live("goes over what the route names, where the network does not carry it", () =>
    Effect.gen(function* () {
      const { hostPort, proxy, route, up, app } = yield* rawPort(4001)
      const sent: Array<string> = []
      const opened: Array<number> = []
      let closed = 0
      let reply: (bytes: Uint8Array) => void = () => undefined
      const datagrams: DatagramPath = {
        open: (guestPort, onReply) => {
          opened.push(guestPort)
          reply = onReply
          return {
            send: (bytes) => void sent.push(Buffer.from(bytes).toString()),
            close: () => {
              closed++
            }
          }
        }
      }
      yield* proxy.setRoute({ ...route, target: { ...up, datagrams } })
      const client = yield* openDatagrams()
      client.send("one", hostPort)
      yield* eventually(
        Effect.sync(() => sent),
        ({ length }) => length === 1
      )
      reply(Buffer.from("answer"))
      assert.strictEqual(yield* client.datagram(0), "answer")
      assert.deepStrictEqual([sent, opened], [["one"], [4001]])
      yield* proxy.removeRoute(route.appId)
      assert.strictEqual(closed, 1)
      reply(Buffer.from("too late"))
      assert.isUndefined((yield* app)?.udp)
    })
  )
})

describe("a datagram for an app that sleeps", () => {
  it.live("wakes it and is delivered, with those that come meanwhile, and answered", () =>
    Effect.gen(function* () {
      const guest = yield* echo
      const raw = yield* rawPort(guest.port)
      const { asked, wake } = yield* raw.sleep
      const one = yield* openDatagrams()
      const two = yield* openDatagrams()
      one.send("a", raw.hostPort)
      yield* eventually(raw.app, (app) => app?.held === 1)
      one.send("b", raw.hostPort)
      two.send("c", raw.hostPort)
      yield* eventually(raw.app, (app) => app?.arrivals === 3)
      assert.deepInclude(yield* raw.app, { open: 2, held: 2 })
      assert.strictEqual(asked.count, 1)
      assert.deepStrictEqual(guest.received, [])
      yield* wake
      assert.deepStrictEqual([yield* one.datagram(0), yield* one.datagram(1)], ["<a>", "<b>"])
      assert.strictEqual(yield* two.datagram(0), "<c>")
      assert.deepInclude(yield* raw.app, { open: 0, held: 0 })
      one.send("d", raw.hostPort)
      assert.strictEqual(yield* one.datagram(2), "<d>")
    })
  )

  it.live("of a client that the app knows already wakes it too", () =>
    Effect.gen(function* () {
      const guest = yield* echo
      const raw = yield* rawPort(guest.port)
      const client = yield* openDatagrams()
      client.send("before", raw.hostPort)
      yield* client.datagram(0)
      const { asked, wake } = yield* raw.sleep
      client.send("after", raw.hostPort)
      yield* eventually(raw.app, (app) => app?.held === 1)
      yield* wake
      assert.strictEqual(yield* client.datagram(1), "<after>")
      assert.strictEqual(asked.count, 1)
    })
  )

  it.live("is sent again while the guest's program is not yet there", () =>
    Effect.gen(function* () {
      const late = yield* freePort
      const raw = yield* rawPort(late, { retry: 20 })
      const { wake } = yield* raw.sleep
      const client = yield* openDatagrams()
      client.send("early", raw.hostPort)
      yield* eventually(raw.app, (app) => app?.held === 1)
      yield* wake
      yield* Effect.sleep(200)
      yield* openDatagrams(late, (text, answer) => answer(`<${text}>`))
      assert.strictEqual(yield* client.datagram(0), "<early>")
      yield* Effect.sleep(100)
      assert.strictEqual(client.received.length, 1)
    })
  )

  it.live("is dropped when the app cannot be woken, and the next one asks again", () =>
    Effect.gen(function* () {
      const guest = yield* openDatagrams()
      const raw = yield* rawPort(guest.port)
      const { asked, wakeTo } = yield* raw.sleep
      yield* wakeTo({ kind: "unavailable", reason: "no room" })
      const client = yield* openDatagrams()
      for (const count of [1, 2]) {
        client.send("one", raw.hostPort)
        yield* eventually(raw.app, (app) => app?.udp.wakeRefused === count)
        assert.strictEqual(asked.count, count)
      }
      assert.deepInclude(yield* raw.app, { open: 0, held: 0 })
      assert.deepStrictEqual(guest.received, [])
    })
  )

  it.live("is kept with others up to a bound, beyond which they are dropped and counted", () =>
    Effect.gen(function* () {
      const guest = yield* openDatagrams()
      const raw = yield* rawPort(guest.port)
      const { wake } = yield* raw.sleep
      const client = yield* openDatagrams()
      for (let index = 0; index < 40; index++) {
        client.send(`${index}`, raw.hostPort)
        yield* eventually(raw.app, (app) => app?.arrivals === index + 1)
      }
      assert.strictEqual((yield* raw.app)?.udp.dropped, 24)
      const large = yield* Effect.forEach(Array.from({ length: 30 }), () => openDatagrams())
      for (const [index, one] of large.entries()) {
        one.send("x".repeat(60_000), raw.hostPort)
        yield* eventually(raw.app, (app) => app?.arrivals === 41 + index)
      }
      assert.isAbove((yield* raw.app)?.udp.dropped ?? 0, 24)
      yield* wake
      for (let index = 0; index < 16; index++) yield* guest.datagram(index)
      assert.include(guest.received, "0")
      assert.include(guest.received, "15")
      assert.notInclude(guest.received, "16")
      yield* eventually(raw.app, (app) => app?.open === 0)
    })
  )
})

describe("datagrams at random to an app that sleeps and wakes at random", () => {
  it.live("leave nothing held and nothing open, and none is answered to another client", () =>
    Effect.gen(function* () {
      const guest = yield* echo
      const raw = yield* rawPort(guest.port, { udpIdle: 200 })
      const clients = yield* Effect.forEach(Array.from({ length: 5 }), () => openDatagrams())
      const steps = fc.sample(fc.constantFrom("send", "send", "send", "sleep", "wake", "refuse", "pause"), {
        numRuns: 200
      })
      let sleeping = yield* raw.sleep
      for (const [index, step] of steps.entries()) {
        if (step === "send") clients[index % 5]?.send(`${index % 5}`, raw.hostPort)
        else if (step === "sleep") sleeping = yield* raw.sleep
        else if (step === "wake") yield* sleeping.wake
        else if (step === "refuse") yield* sleeping.wakeTo({ kind: "unavailable", reason: "no" })
        else yield* Effect.sleep(5)
      }
      yield* sleeping.wake
      yield* raw.proxy.setRoute({ ...raw.route, target: raw.up })
      yield* eventually(raw.app, (app) => app?.open === 0 && app.held === 0 && app.udp.open === 0)
      for (const [index, client] of clients.entries()) {
        for (const text of client.received) assert.strictEqual(text, `<${index}>`)
      }
    })
  )
})
