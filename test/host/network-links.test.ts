/** Links over their life: made, swept, taken over by the next owner; and nothing attached while the rules are not in force. */
import { createSocket } from "node:dgram"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Option, Result } from "effect"
import * as fc from "fast-check"
import { layerNetwork } from "../../layers/network/choose.ts"
import { decodeConfig } from "../../src/config/decode.ts"
import { exampleConfig } from "../../src/config/example.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import { Network } from "../../src/services/Network.ts"
import { lineChild } from "./network/child.ts"
import { HOST, INTERNET, makePeer, PEER_PORT } from "./network/peer.ts"
import { openGuest, openTap, openWorld } from "./network/tap-guest.ts"
import { cleared, ip, nft, openNetwork, rulesThere, taps, until } from "./network/tap-world.ts"
import { inOwnNamespace } from "./own-namespace.ts"

/** The first raw port of slot 1. */
const HOST_PORT = 21_009
const forward = { hostPort: HOST_PORT, guestPort: 4000 }

/** What listens on the raw port when the kernel does not carry it, as the proxy does. */
const proxy = Effect.acquireRelease(
  Effect.callback<{ readonly heard: Array<string>; readonly close: () => void }>((resume) => {
    const heard: Array<string> = []
    const socket = createSocket("udp4")
    socket.on("message", (bytes) => heard.push(bytes.toString()))
    socket.bind(HOST_PORT, "0.0.0.0", () => resume(Effect.succeed({ heard, close: () => socket.close() })))
  }),
  ({ close }) => Effect.sync(close)
)

describe.skipIf(!inOwnNamespace)("the links of a host with taps", () => {
  it.live("are made for the slot's VMM alone, and are gone with the app", () =>
    Effect.gen(function* () {
      yield* cleared
      const { network } = yield* openNetwork({ owner: (slot) => 70_000 + slot })
      yield* network.attach(1, [3000])
      yield* network.attach(2, [3000])
      assert.include(ip("-d", "link", "show", "nbr1"), "persist on user 70001")
      assert.include(
        ip("neighbour", "show", "dev", "nbr1"),
        `${slotAddresses(1).guest} lladdr ${slotAddresses(1).mac} PERMANENT`
      )
      yield* network.detach(1)
      assert.deepStrictEqual(taps(), ["nbr2"])
      assert.notInclude(nft("list", "table", "inet", "nibrunner"), slotAddresses(1).guest)
    }).pipe(Effect.scoped)
  )

  it.live("outlive the daemon; the next one keeps those of its apps and sweeps the rest", () =>
    Effect.gen(function* () {
      yield* cleared
      yield* makePeer
      const first = yield* openNetwork()
      for (const slot of [1, 2, 3]) yield* first.network.attach(slot, [3000])
      const guest = yield* openTap(2)
      guest.sendDatagram({ address: INTERNET, port: PEER_PORT }, "before")
      assert.isTrue(yield* guest.hears("before"))
      yield* first.letGo
      ip("tuntap", "add", "dev", "nbr77", "mode", "tap")
      ip("tuntap", "add", "dev", "test-nbr9", "mode", "tap")
      yield* Effect.addFinalizer(() => Effect.sync(() => ip("link", "delete", "test-nbr9")))

      const second = yield* openNetwork()
      assert.sameMembers([...taps()], ["nbr1", "nbr2", "nbr3", "nbr77"])
      assert.isTrue(rulesThere())
      assert.deepStrictEqual(yield* second.network.sweep([2, 5]), [1, 3, 77])
      assert.deepStrictEqual(taps(), ["nbr2"])
      assert.include(ip("-br", "link"), "test-nbr9")
      // The VMM that has the tap open goes on as if nothing had been.
      guest.sendDatagram({ address: INTERNET, port: PEER_PORT }, "after")
      assert.isTrue(yield* guest.hears("after"))
    }).pipe(Effect.scoped)
  )

  it.live("are one daemon's: a second one on the machine is told so and touches nothing", () =>
    Effect.gen(function* () {
      yield* cleared
      const { network } = yield* openNetwork()
      yield* network.attach(1, [3000])
      const error = yield* Effect.flip(openNetwork())
      assert.include(error.message, "another nibrunner on this machine has the taps")
      assert.deepStrictEqual(taps(), ["nbr1"])
    }).pipe(Effect.scoped)
  )

  it.live("are not attached while the rules cannot be loaded, and are as soon as they can", () =>
    Effect.gen(function* () {
      yield* cleared
      const { network } = yield* openNetwork()
      yield* network.attach(1, [3000])
      // A program that owns the table: the kernel lets no other change it until that program ends.
      const thief = yield* lineChild("nft", ["-i"])
      thief.write("delete table inet nibrunner; add table inet nibrunner { flags owner; }")
      yield* until(() => rulesThere() && !nft("list", "table", "inet", "nibrunner").includes("chain"))
      const attach = Effect.exit(network.attach(2, [3000]))
      yield* attach.pipe(Effect.repeat({ until: (exit) => exit._tag === "Failure" }))
      const error = yield* Effect.flip(network.attach(2, [3000]))
      assert.include(error.message, "the network of slot 2 cannot be set up: nft failed")
      assert.include((yield* Effect.flip(network.attach(1, [3000]))).message, "nft failed")
      assert.deepStrictEqual(taps(), ["nbr1"])
      yield* Effect.callback<void>((resume) => {
        thief.process.once("exit", () => resume(Effect.void))
        thief.process.kill("SIGKILL")
      })
      yield* until(() => rulesThere() && nft("list", "table", "inet", "nibrunner").includes("chain"))
      yield* network.attach(2, [3000])
      assert.deepStrictEqual(taps(), ["nbr1", "nbr2"])
    }).pipe(Effect.scoped)
  )

  it.live(
    "carry raw ports while they are told to, then leave them to the proxy again, also for who has spoken before",
    () =>
      Effect.gen(function* () {
        yield* cleared
        const peer = yield* makePeer
        const listener = yield* proxy
        const { network } = yield* openNetwork()
        const guest = yield* openGuest(network, 1, 4000)
        const say = (name: string, text: string) =>
          peer.tell("datagram", { name, host: HOST, port: HOST_PORT, text, waitMs: 100 })

        yield* say("early", "asleep")
        yield* until(() => listener.heard.includes("asleep"))
        yield* network.setForwards(1, [forward])
        yield* say("one", "up")
        const got = Option.getOrThrow(yield* guest.get((got) => got.kind === "datagram" && got.text === "up"))
        assert.deepInclude(got, { from: INTERNET })
        const before = (yield* network.traffic).get(1)
        assert.deepInclude(before, { arrivals: 1, openFlows: 0 })

        // No new ones; who is known goes on.
        yield* network.setForwards(1, [])
        yield* say("two", "new")
        yield* until(() => listener.heard.includes("new"))
        yield* say("one", "known")
        assert.isTrue(yield* guest.hears("known"))
        assert.deepInclude((yield* network.traffic).get(1), { arrivals: 2 })

        yield* network.cut(1)
        yield* say("one", "cut")
        yield* until(() => listener.heard.includes("cut"))
        assert.deepStrictEqual(listener.heard, ["asleep", "new", "cut"])
      }).pipe(Effect.scoped)
  )

  it.live("count what comes for a guest, whoever began, but as an arrival only what others begin", () =>
    Effect.gen(function* () {
      const { peer, network, guest } = yield* openWorld({ port: 4000 })
      for (let turn = 1; turn <= 3; turn++) {
        guest.sendDatagram({ address: INTERNET, port: PEER_PORT }, `own ${turn}`)
        assert.isTrue(yield* guest.hears(`own ${turn}`))
      }
      const sent = 3 * (20 + 8 + "own 1".length)
      assert.deepStrictEqual((yield* network.traffic).get(1), {
        bytesIn: sent,
        bytesOut: sent,
        arrivals: 0,
        openFlows: 0
      })
      // Loads in between lose nothing of it.
      yield* network.setForwards(1, [forward])
      yield* peer.tell("datagram", { name: "x", host: HOST, port: HOST_PORT, text: "12345", waitMs: 50 })
      assert.isTrue(yield* guest.hears("12345"))
      assert.deepStrictEqual((yield* network.traffic).get(1), {
        bytesIn: sent + 33,
        bytesOut: sent,
        arrivals: 1,
        openFlows: 0
      })
      guest.sendDatagram({ address: HOST, port: 9 }, "what is refused is not counted")
      assert.isTrue(Option.isSome(yield* guest.get(({ kind }) => kind === "unreachable")))
      assert.strictEqual((yield* network.traffic).get(1)?.bytesOut, sent)
    }).pipe(Effect.scoped)
  )

  it.live("bring the next owner of a slot nothing that was the last one's", () =>
    Effect.gen(function* () {
      yield* cleared
      const peer = yield* makePeer
      const { network } = yield* openNetwork()
      const say = (text: string, name = "client") =>
        peer.tell("datagram", { name, host: HOST, port: HOST_PORT, text, waitMs: 100 })
      yield* network.attach(1, [4000])
      yield* network.setForwards(1, [forward])
      const first = yield* Effect.scoped(
        Effect.gen(function* () {
          const guest = yield* openTap(1)
          yield* say("for the first")
          guest.sendDatagram({ address: INTERNET, port: PEER_PORT }, "of the first")
          return yield* guest.hears("of the first")
        })
      )
      assert.isTrue(first)
      yield* network.detach(1)
      const next = yield* openGuest(network, 1, 4000)
      yield* say("still for the first")
      assert.deepStrictEqual((yield* network.traffic).get(1), {
        bytesIn: 0,
        bytesOut: 0,
        arrivals: 0,
        openFlows: 0
      })
      // What comes for it itself comes first: nothing was before.
      yield* network.setForwards(1, [forward])
      yield* say("for the second", "another client")
      const got = Option.getOrThrow(yield* next.get(({ kind }) => kind === "datagram"))
      assert.deepInclude(got, { text: "for the second" })
    }).pipe(Effect.scoped)
  )

  it.live("refuse ports that are not the slot's, and forwards of a slot that is not attached", () =>
    Effect.gen(function* () {
      yield* cleared
      const { network } = yield* openNetwork()
      yield* network.attach(1, [4000])
      const reason = (slot: number, hostPort: number, guestPort = 4000) =>
        Effect.map(
          Effect.flip(network.setForwards(slot, [{ hostPort, guestPort }])),
          ({ message }) => message
        )
      assert.include(yield* reason(2, 21_017), "slot 2 cannot be set up: it is not attached")
      for (const port of [21_007, 21_008, 21_016, 22]) {
        assert.include(yield* reason(1, port), `${port} is none of its raw ports`)
      }
      assert.include(yield* reason(1, 21_009, 0), "0 is no port")
      const twice = yield* Effect.flip(network.setForwards(1, [forward, { ...forward, guestPort: 5 }]))
      assert.include(twice.message, "21009 is forwarded twice")
    }).pipe(Effect.scoped)
  )

  it.live("are there where the configuration asks for taps, or for nothing", () =>
    Effect.gen(function* () {
      yield* cleared
      const { hypervisor: _, ...silent } = Result.getOrThrow(decodeConfig(exampleConfig(), "config.toml"))
      const carriesDatagrams = (network?: "tap" | "user") => {
        const asked = { backend: "qemu" as const, binary: "/usr/bin/qemu-system-x86_64" }
        const config = network === undefined ? silent : { ...silent, hypervisor: { ...asked, network } }
        return Effect.provide(
          Network.useSync((service) => service.carriesDatagrams),
          layerNetwork(config).pipe(Layer.provide(NodeServices.layer), Layer.fresh)
        )
      }
      assert.isTrue(yield* carriesDatagrams())
      assert.isTrue(yield* carriesDatagrams("tap"))
      assert.isFalse(yield* carriesDatagrams("user"))
    }).pipe(Effect.scoped)
  )

  it.live("are what was asked for last, however calls for many slots overlap", () =>
    Effect.gen(function* () {
      yield* cleared
      const { network } = yield* openNetwork()
      const calls = fc.sample(
        fc.array(
          fc.oneof(
            fc.constant({ kind: "attach" as const }),
            fc.constant({ kind: "detach" as const }),
            fc.record({
              kind: fc.constant("forward" as const),
              guestPort: fc.integer({ min: 1, max: 65_535 })
            }),
            fc.constant({ kind: "cut" as const })
          ),
          { minLength: 4, maxLength: 12 }
        ),
        6
      )
      // One fiber for each slot, as for each app: all at the same time.
      const models = yield* Effect.forEach(
        calls,
        (list, slot) =>
          Effect.gen(function* () {
            let attached = false
            let guestPort: number | undefined
            for (const call of list) {
              if (call.kind === "attach") {
                yield* network.attach(slot, [3000])
                attached = true
              } else if (call.kind === "detach") {
                yield* network.detach(slot)
                attached = false
                guestPort = undefined
              } else if (call.kind === "cut") {
                yield* network.cut(slot)
              } else {
                const set = network.setForwards(slot, [
                  { hostPort: 21_001 + 8 * slot, guestPort: call.guestPort }
                ])
                assert.strictEqual((yield* Effect.exit(set))._tag, attached ? "Success" : "Failure")
                if (attached) guestPort = call.guestPort
              }
            }
            return { slot, attached, guestPort }
          }),
        { concurrency: "unbounded" }
      )
      const there = models.filter(({ attached }) => attached)
      assert.sameMembers(
        [...taps()],
        there.map(({ slot }) => `nbr${slot}`)
      )
      assert.sameMembers(
        [...(yield* network.traffic).keys()],
        there.map(({ slot }) => slot)
      )
      const table = nft("list", "table", "inet", "nibrunner")
      for (const { slot, attached, guestPort } of models) {
        const { guest } = slotAddresses(slot)
        assert.strictEqual(table.includes(`"nbr${slot}" . ${guest}`), attached, `slot ${slot}`)
        const forwards = [...table.matchAll(/(\d+) : (10\.201\.\d+\.\d+) \. (\d+)/gu)].filter(
          ([, , to]) => to === guest
        )
        assert.deepStrictEqual(
          [...new Set(forwards.map(([, , , port]) => Number(port)))],
          guestPort === undefined ? [] : [guestPort]
        )
      }
    }).pipe(Effect.scoped)
  )
})
