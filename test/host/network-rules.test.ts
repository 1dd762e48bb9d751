/** The rules against guests that send whatever they like: hostile frames over real taps, no microVM needed. */
import { createSocket } from "node:dgram"
import { readdirSync, readFileSync, writeFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { slotAddresses } from "../../src/network/addresses.ts"
import { gatewayMac } from "../../src/network/tap-link.ts"
import { arpRequest, udp6Frame } from "./network/frames.ts"
import {
  DENIED,
  DENIED_RANGE,
  HOST,
  HOST6,
  INTERNET,
  INTERNET6,
  METADATA,
  makePeer,
  NOT_DENIED,
  PEER_PORT,
  PRIVATE
} from "./network/peer.ts"
import { openGuest, openTap, openWorld } from "./network/tap-guest.ts"
import { cleared, ip, nft, openNetwork, rulesThere, until } from "./network/tap-world.ts"
import { inOwnNamespace } from "./own-namespace.ts"

/** Rejected at once, not timed out. */
const AT_ONCE_MS = 1500

/** Whether the guest is told at once that what it sent is refused. */
const refusedAtOnce = (guest: Effect.Success<ReturnType<typeof openTap>>) =>
  Effect.map(
    guest.get((got) => got.kind === "unreachable" && got.code === 13, AT_ONCE_MS),
    Option.isSome
  )

/** A server of the host on all of its addresses: a datagram for it is noted. */
const hostServer = Effect.acquireRelease(
  Effect.callback<{ readonly port: number; readonly heard: Array<string>; readonly close: () => void }>(
    (resume) => {
      const heard: Array<string> = []
      const socket = createSocket("udp4")
      socket.on("message", (bytes, from) => {
        heard.push(bytes.toString())
        socket.send(bytes, from.port, from.address)
      })
      socket.bind(0, "0.0.0.0", () => {
        const { port } = socket.address()
        resume(Effect.succeed({ port, heard, close: () => socket.close() }))
      })
    }
  ),
  ({ close }) => Effect.sync(close)
)

const internet = { address: INTERNET, port: PEER_PORT }

const at = (slot: number) => slotAddresses(slot)

/** Processes with the word on their command line, and whose children they are. */
const processesOf = (word: string) =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .flatMap((pid) => {
      try {
        const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").join(" ")
        const parent = /\) \S (\d+) /u.exec(readFileSync(`/proc/${pid}/stat`, "utf8"))?.[1]
        return command.includes(word) ? [{ pid: Number(pid), parent: Number(parent), command }] : []
      } catch {
        return [] // it ended while we looked
      }
    })

describe.skipIf(!inOwnNamespace)("the rules of taps", () => {
  it.live("let a guest reach the internet under the host's address, and bring it the answers", () =>
    Effect.gen(function* () {
      const { peer, guest } = yield* openWorld()
      guest.sendDatagram(internet, "to the internet")
      const answer = yield* guest.get(({ kind }) => kind === "datagram")
      assert.deepStrictEqual(Option.getOrUndefined(answer), {
        kind: "datagram",
        from: INTERNET,
        port: PEER_PORT,
        text: "to the internet"
      })
      assert.strictEqual((yield* peer.tell("heard", {})).text, "to the internet")
    }).pipe(Effect.scoped)
  )

  it.live("refuse a guest at once whatever is private, another's or the machine's own", () =>
    Effect.gen(function* () {
      const { peer, network, guest } = yield* openWorld({ denied: [DENIED_RANGE] })
      const neighbour = yield* openGuest(network, 2)
      const server = yield* hostServer
      const host = createSocket("udp4")
      yield* Effect.addFinalizer(() => Effect.sync(() => host.close()))
      // The kernel gives each destination six ICMP errors at once and one a second from then on; resets are not counted so.
      writeFileSync("/proc/sys/net/ipv4/icmp_ratelimit", "0")
      const refused: ReadonlyArray<readonly [address: string, port: number]> = [
        [METADATA, PEER_PORT],
        ...PRIVATE.map((address) => [address, PEER_PORT] as const),
        [DENIED, PEER_PORT],
        [at(2).guest, 3000],
        [at(2).host, server.port],
        [at(1).host, server.port],
        [at(1).host, 53],
        [HOST, server.port],
        [HOST, 9]
      ]
      for (const [address, port] of refused) {
        const text = `${address}:${port}`
        guest.sendDatagram({ address, port }, text)
        assert.isTrue(yield* refusedAtOnce(guest), `${text} is not refused at once`)
      }
      // The controls: the same addresses answer to the host, and the guest to whom it may reach.
      for (const address of [METADATA, ...PRIVATE, DENIED])
        host.send(`host to ${address}`, PEER_PORT, address)
      guest.sendDatagram({ address: NOT_DENIED, port: PEER_PORT }, "the last")
      assert.isTrue(yield* guest.hears("the last"))
      const heard = (yield* peer.tell("heard", {})).text?.split("\n")
      assert.sameMembers(
        [...(heard ?? [])],
        [...[METADATA, ...PRIVATE, DENIED].map((address) => `host to ${address}`), "the last"]
      )
      assert.deepStrictEqual(server.heard, [])
      assert.deepStrictEqual(
        (yield* peer.tell("datagram", { name: "x", host: HOST, port: server.port, text: "control" })).text,
        "control"
      )
      host.send("from the host", 3000, at(2).guest)
      assert.isTrue(yield* neighbour.hears("from the host"))
    }).pipe(Effect.scoped)
  )

  it.live("drop what a guest sends in the name of another, by address or by MAC", () =>
    Effect.gen(function* () {
      const { peer, network, guest } = yield* openWorld()
      const neighbour = yield* openGuest(network, 2)
      guest.sendDatagram(internet, "another's address", { address: at(2).guest })
      guest.sendDatagram(internet, "another's both", { address: at(2).guest, mac: at(2).mac })
      guest.sendDatagram(internet, "another's MAC", { mac: at(2).mac })
      guest.sendDatagram(internet, "a stranger's address", { address: "203.0.113.77" })
      guest.sendDatagram(internet, "the host's address", { address: at(1).host })
      guest.sendDatagram(internet, "its own")
      assert.isTrue(yield* guest.hears("its own"))
      assert.strictEqual((yield* peer.tell("heard", {})).text, "its own")
      // The one that it pretended to be has been told nothing.
      neighbour.sendDatagram(internet, "the neighbour's own")
      const first = yield* neighbour.get(({ kind }) => kind !== "other")
      assert.deepInclude(Option.getOrThrow(first), { text: "the neighbour's own" })
    }).pipe(Effect.scoped)
  )

  it.live("let nothing of IPv6 through, and tell of no address by ARP but the gateway's", () =>
    Effect.gen(function* () {
      yield* cleared
      const peer = yield* makePeer
      const { network } = yield* openNetwork()
      yield* network.attach(1, [3000])
      ip("tuntap", "add", "dev", "test-plain", "mode", "tap")
      yield* Effect.addFinalizer(() => Effect.sync(() => ip("link", "delete", "test-plain")))
      ip("link", "set", "test-plain", "address", gatewayMac(1), "up")
      writeFileSync("/proc/sys/net/ipv6/conf/all/forwarding", "1")
      const frame = (text: string, to: string) =>
        udp6Frame({
          from: { mac: at(1).mac, address: "2001:db8:5::2", port: 5000 },
          to: { mac: gatewayMac(1), address: to, port: PEER_PORT },
          text
        })
      const guest = yield* openTap(1)
      const plain = yield* openTap(1, "test-plain")
      guest.send(frame("a guest to the internet", INTERNET6))
      guest.send(frame("a guest to the host", HOST6))
      plain.send(frame("a plain tap to the internet", INTERNET6))
      while (!((yield* peer.tell("heard", {})).text ?? "").includes("plain tap")) yield* Effect.sleep(20)
      assert.strictEqual((yield* peer.tell("heard", {})).text, "a plain tap to the internet")

      for (const asked of [HOST, at(2).host, at(1).host])
        guest.send(arpRequest(at(1).mac, at(1).guest, asked))
      const answer = yield* guest.get(({ kind }) => kind === "arp-answer")
      assert.deepStrictEqual(Option.getOrUndefined(answer), { kind: "arp-answer", address: at(1).host })
    }).pipe(Effect.scoped)
  )

  it.live("cut a flow that is open when its range becomes denied", () =>
    Effect.gen(function* () {
      const { guest, letGo } = yield* openWorld()
      for (const address of [DENIED, NOT_DENIED]) {
        guest.sendDatagram({ address, port: PEER_PORT }, `open to ${address}`)
        assert.isTrue(yield* guest.hears(`open to ${address}`))
      }
      yield* letGo
      const after = yield* openNetwork({ denied: [DENIED_RANGE] })
      assert.deepStrictEqual(yield* after.network.sweep([1]), [])
      guest.sendDatagram({ address: DENIED, port: PEER_PORT }, "again")
      assert.isTrue(yield* refusedAtOnce(guest))
      guest.sendDatagram({ address: NOT_DENIED, port: PEER_PORT }, "goes on")
      assert.isTrue(yield* guest.hears("goes on"))
    }).pipe(Effect.scoped)
  )

  it.live("let a guest open so many flows and no more, while others open theirs", () =>
    Effect.gen(function* () {
      const { peer, network, guest } = yield* openWorld()
      const neighbour = yield* openGuest(network, 2)
      for (let turn = 0; turn < 1026; turn++) {
        guest.sendDatagram(internet, `flow ${turn}`, { port: 10_000 + turn })
        // Answered one by one, so that no queue on the way overflows.
        const got = yield* guest.get(({ kind }) => kind !== "other")
        if (turn < 1024) assert.deepInclude(Option.getOrThrow(got), { text: `flow ${turn}` })
        else assert.deepInclude(Option.getOrThrow(got), { kind: "unreachable", code: 13 })
      }
      guest.sendDatagram(internet, "a flow that is open", { port: 10_000 })
      assert.isTrue(yield* guest.hears("a flow that is open"))
      neighbour.sendDatagram(internet, "the neighbour's")
      assert.isTrue(yield* neighbour.hears("the neighbour's"))
      assert.notInclude((yield* peer.tell("heard", {})).text, "flow 1024")
    }).pipe(Effect.scoped)
  )

  it.live("keep a guest from whoever knows its address outside, while its forwards let them in", () =>
    Effect.gen(function* () {
      const { peer, network, guest } = yield* openWorld({ port: 4000 })
      const direct = yield* peer.tell("connect", { host: at(1).guest, port: 4000 })
      assert.strictEqual(direct.error, "ECONNREFUSED")
      yield* network.setForwards(1, [{ hostPort: 21_009, guestPort: 4000 }])
      yield* peer.tell("datagram", { name: "d", host: at(1).guest, port: 4000, text: "direct", waitMs: 200 })
      yield* Effect.forkChild(
        peer.tell("datagram", { name: "f", host: HOST, port: 21_009, text: "forwarded", waitMs: 200 })
      )
      const got = yield* guest.get(({ kind }) => kind === "datagram")
      assert.deepInclude(Option.getOrThrow(got), { text: "forwarded", from: INTERNET })
    }).pipe(Effect.scoped)
  )

  it.live("come back within seconds when another program flushes or changes them", () =>
    Effect.gen(function* () {
      yield* cleared
      const { network } = yield* openNetwork()
      const guest = yield* openGuest(network, 1)
      const server = yield* hostServer
      const table = () => nft("-s", "list", "table", "inet", "nibrunner").replace(/comment "[^"]*"/u, "")
      const whole = table()
      const repaired = until(() => rulesThere() && table() === whole, "30 seconds")
      const damages: ReadonlyArray<ReadonlyArray<string>> = [
        ["flush", "ruleset"],
        ["delete", "table", "inet", "nibrunner"],
        ["flush", "chain", "inet", "nibrunner", "to_host"],
        ["insert", "rule", "inet", "nibrunner", "to_host", "accept"],
        ["add", "rule", "inet", "nibrunner", "stamp", "accept"]
      ]
      for (const damage of damages) {
        nft(...damage)
        yield* repaired
        guest.sendDatagram({ address: at(1).host, port: server.port }, damage.join(" "))
        assert.isTrue(yield* refusedAtOnce(guest), damage.join(" "))
      }
      assert.deepStrictEqual(server.heard, [])
    }).pipe(Effect.scoped)
  )

  it.live("come back too when the program that hears of changes has ended", () =>
    Effect.gen(function* () {
      yield* cleared
      const { network } = yield* openNetwork()
      yield* network.attach(1, [3000])
      const monitors = () =>
        processesOf("monitor").filter(
          ({ parent, command }) => parent === process.pid && command.includes("nft")
        )
      yield* until(() => monitors().length === 1)
      for (const { pid } of monitors()) process.kill(pid, "SIGKILL")
      nft("insert", "rule", "inet", "nibrunner", "to_host", "accept")
      const rules = () => (rulesThere() ? nft("list", "chain", "inet", "nibrunner", "to_host") : "")
      yield* until(() => rules().includes("ct direction reply") && !/\n\s*accept\n/u.test(rules()))
    }).pipe(Effect.scoped)
  )
})
