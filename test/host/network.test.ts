/** Isolation, proven from inside microVMs, with a control beside each denial: what is denied here is reached otherwise. */
import { mkdirSync } from "node:fs"
import { createServer, type Server } from "node:net"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { Guest } from "../../src/services/Guest.ts"
import {
  connects,
  DENIED,
  DENIED_RANGE,
  HOST,
  INTERNET,
  INTERNET6,
  METADATA,
  NOT_DENIED,
  PEER_PORT,
  PRIVATE
} from "./network/peer.ts"
import { openMachine } from "./network/tap-machine.ts"
import { nft } from "./network/tap-world.ts"
import { inOwnNamespace } from "./own-namespace.ts"
import { PATIENCE_MS } from "./qemu.ts"

/** Rejected at once, not timed out. */
const AT_ONCE_MS = 1500

/** A server of the host on all of its addresses. */
const hostServer = (port = 0) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly server: Server; readonly port: number; readonly visits: () => number }>(
      (resume) => {
        let visits = 0
        const server = createServer((socket) => {
          visits++
          socket.on("error", () => {})
          socket.pipe(socket)
        })
        server.listen(port, "0.0.0.0", () => {
          const address = server.address()
          const bound = typeof address === "object" && address !== null ? address.port : 0
          resume(Effect.succeed({ server, port: bound, visits: () => visits }))
        })
      }
    ),
    ({ server }) => Effect.sync(() => server.close())
  )

const blockedAtOnce = (said: string, target: string) => {
  const [, reason, took] = /^blocked \((.+)\) in (\d+)ms\n$/u.exec(said) ?? []
  assert.isDefined(took, `${target}: ${said}`)
  assert.isBelow(Number(took), AT_ONCE_MS, `${target}: ${said}`)
  return reason
}

describe.skipIf(!inOwnNamespace)("a guest behind a tap", () => {
  it.live(
    "reaches the internet, and neither the host, nor another guest, nor what is denied: it is told so at once",
    () =>
      Effect.gen(function* () {
        const { peer, boot } = yield* openMachine({ denied: [DENIED_RANGE] })
        const server = yield* hostServer()
        const [app, other] = yield* Effect.all([boot("app", 1), boot("other", 2)], { concurrency: 2 })
        const reach = (target: string) => app.ask(`/reach?addr=${encodeURIComponent(target)}`)

        assert.match(yield* reach(`${INTERNET}:${PEER_PORT}`), /^reached/u)
        assert.match(yield* reach(`${NOT_DENIED}:${PEER_PORT}`), /^reached/u)
        const denied = [METADATA, ...PRIVATE, DENIED].map((address) => `${address}:${PEER_PORT}`)
        const others = [
          `${other.link.guestAddress}:3000`,
          `${app.link.hostAddress}:${server.port}`,
          `${other.link.hostAddress}:${server.port}`,
          `${HOST}:${server.port}`,
          `${HOST}:1`,
          `${app.link.hostAddress}:1`
        ]
        for (const target of [...denied, ...others]) {
          assert.strictEqual(blockedAtOnce(yield* reach(target), target), "Connection refused")
        }
        blockedAtOnce(yield* reach(`[${INTERNET6}]:${PEER_PORT}`), INTERNET6)

        // Each of them answers whoever may reach it.
        const plain = yield* hostServer()
        assert.strictEqual(server.visits(), 0)
        for (const address of [METADATA, ...PRIVATE, DENIED]) {
          assert.strictEqual(yield* connects(address, PEER_PORT), "connected", address)
        }
        assert.strictEqual(yield* connects(INTERNET6, PEER_PORT), "connected")
        assert.strictEqual(
          (yield* peer.tell("connect", { name: "h", host: HOST, port: server.port })).text,
          "connected"
        )
        assert.strictEqual(yield* connects(app.link.hostAddress, plain.port), "connected")
        assert.strictEqual(yield* other.ask("/"), "ok\n")

        // The same address on a host that does not deny it.
        nft("flush", "set", "inet", "nibrunner", "denied")
        assert.match(yield* reach(`${DENIED}:${PEER_PORT}`), /^reached/u)
        assert.match(yield* reach(`${METADATA}:${PEER_PORT}`), /^reached/u)
      }).pipe(Effect.scoped, Effect.provide(layerVirtioSerialGuest))
  )

  it.live(
    "is reached on its raw ports by the kernel while they are forwarded, and keeps what is open until it is cut",
    () =>
      Effect.gen(function* () {
        const { peer, network, boot } = yield* openMachine()
        const app = yield* boot("app", 1, ["--raw-tcp", "4000", "--raw-udp", "4001"])
        // The daemon's own listener stays: what the kernel carries goes past it.
        const tcpPort = 21_009
        const listener = yield* hostServer(tcpPort)
        const forwards = [
          { hostPort: tcpPort, guestPort: 4000 },
          { hostPort: tcpPort + 1, guestPort: 4001 }
        ]
        yield* network.setForwards(1, forwards)
        const connect = (name: string) => peer.tell("connect", { name, host: HOST, port: tcpPort })
        const echo = (name: string, text: string) => peer.tell("ask", { name, text })

        assert.deepStrictEqual(yield* connect("one"), { text: "connected" })
        assert.deepStrictEqual(yield* echo("one", "by the kernel"), { text: "by the kernel" })
        assert.strictEqual(listener.visits(), 0)
        assert.deepInclude((yield* network.traffic).get(1), { openFlows: 1 })
        const datagram = yield* peer.tell("datagram", {
          name: "u",
          host: HOST,
          port: tcpPort + 1,
          text: "by UDP"
        })
        assert.deepStrictEqual(datagram, { text: "by UDP", from: `${HOST}:${tcpPort + 1}` })
        // What the guest does not listen on is the guest's own refusal.
        yield* network.setForwards(1, [...forwards, { hostPort: tcpPort + 2, guestPort: 4009 }])
        assert.deepStrictEqual(yield* peer.tell("connect", { name: "no", host: HOST, port: tcpPort + 2 }), {
          error: "ECONNREFUSED"
        })

        yield* network.setForwards(1, [])
        assert.deepStrictEqual(yield* echo("one", "still open"), { text: "still open" })
        assert.deepStrictEqual(yield* connect("two"), { text: "connected" })
        assert.deepStrictEqual(yield* echo("two", "by the listener"), { text: "by the listener" })
        assert.strictEqual(listener.visits(), 1)
        assert.deepInclude((yield* network.traffic).get(1), { openFlows: 1 })
        yield* network.cut(1)
        assert.strictEqual((yield* echo("one", "cut")).error, "ECONNRESET")
        assert.deepInclude((yield* network.traffic).get(1), { openFlows: 0 })
        assert.strictEqual(yield* app.ask("/"), "ok\n")
      }).pipe(Effect.scoped, Effect.provide(layerVirtioSerialGuest))
  )

  it.live(
    "sleeps and wakes behind its tap, also one that was made anew, and is as reachable and as far-reaching as before",
    () =>
      Effect.gen(function* () {
        const { network, hypervisor, directory, boot } = yield* openMachine()
        const app = yield* Effect.scoped(
          Effect.gen(function* () {
            const booted = yield* boot("app", 1)
            assert.strictEqual(yield* booted.ask("/remember"), "1\n")
            assert.match(yield* booted.ask(`/reach?addr=${INTERNET}:${PEER_PORT}`), /^reached/u)
            yield* booted.session.freeze(60_000)
            const place = { directory: join(directory, "snapshots", "app"), deploymentId: "dep-1" }
            mkdirSync(join(directory, "snapshots"))
            yield* hypervisor.sleep(booted.machine, place)
            return { ...booted, place }
          })
        )
        yield* network.detach(1)
        const link = yield* network.attach(1, [3000])
        assert.deepStrictEqual(link, app.link)
        const machine = yield* Effect.acquireRelease(
          hypervisor.wake({ ...app.spec, machineId: "00000000000000ff", link }, app.place),
          ({ record }) => Effect.ignore(hypervisor.kill(record))
        )
        const session = yield* Guest.use((guest) => guest.connect(machine, PATIENCE_MS))
        yield* session.thaw
        assert.strictEqual(yield* app.ask("/remember"), "2\n")
        assert.match(yield* app.ask(`/reach?addr=${INTERNET}:${PEER_PORT}`), /^reached/u)
        blockedAtOnce(yield* app.ask(`/reach?addr=${HOST}:1`), HOST)
      }).pipe(Effect.scoped, Effect.provide(layerVirtioSerialGuest))
  )
})
