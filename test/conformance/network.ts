/** What every network must do. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, type Layer, type Scope } from "effect"
import { slotAddresses } from "../../src/network/addresses.ts"
import { Network, type NetworkLink } from "../../src/services/Network.ts"

/** A tap forwards nothing: every port of the guest is reached. */
const portsOf = (link: NetworkLink, asked: ReadonlyArray<number>) =>
  link.kind === "user" ? link.ports : asked

const hostOf = (link: NetworkLink, slot: number) =>
  link.kind === "user" ? slotAddresses(slot).loopback : link.guestAddress

export const networkConformance = (
  name: string,
  make: Effect.Effect<Layer.Layer<Network, unknown>, unknown, Scope.Scope>
) =>
  describe(`${name} as a network`, () => {
    const test = (
      sentence: string,
      body: (network: Network["Service"]) => Effect.Effect<void, unknown, Scope.Scope>
    ) =>
      it.live(sentence, () => Effect.flatMap(make, (layer) => Network.use(body).pipe(Effect.provide(layer))))

    test("gives a slot its own addresses and MAC", (network) =>
      Effect.gen(function* () {
        const link = yield* network.attach(3, [3000])
        const addresses = slotAddresses(3)
        assert.strictEqual(link.guestAddress, addresses.guest)
        assert.strictEqual(link.hostAddress, addresses.host)
        assert.strictEqual(link.prefixLength, 30)
        assert.strictEqual(link.mac, addresses.mac)
        yield* network.detach(3)
      }))

    test("attaches again what is attached, with the ports of the last time", (network) =>
      Effect.gen(function* () {
        yield* network.attach(3, [3000])
        const again = yield* network.attach(3, [4000, 5000])
        assert.deepStrictEqual(portsOf(again, [4000, 5000]), [4000, 5000])
        assert.deepStrictEqual(again, yield* network.attach(3, [4000, 5000]))
        yield* network.detach(3)
      }))

    test("detaches what is not attached without an error", (network) =>
      Effect.gen(function* () {
        yield* network.detach(9)
        yield* network.attach(3, [3000])
        yield* network.detach(3)
        yield* network.detach(3)
      }))

    test("reaches a guest's port where its link says, also while it is detached", (network) =>
      Effect.gen(function* () {
        const before = network.reach(3, 3000)
        const link = yield* network.attach(3, [3000])
        assert.deepStrictEqual(before, { host: hostOf(link, 3), port: 3000 })
        assert.deepStrictEqual(network.reach(3, 3000), before)
        assert.notStrictEqual(network.reach(4, 3000).host, before.host)
        yield* network.detach(3)
      }))

    test("refuses a slot that does not exist by its number", (network) =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(network.attach(16384, [3000]))
        assert.strictEqual(error.slot, 16384)
        assert.include(error.message, "slot 16384")
      }))

    test("refuses what is no port by its number, and a port that is named twice is one", (network) =>
      Effect.gen(function* () {
        for (const port of [0, 65536, 1.5]) {
          assert.include((yield* Effect.flip(network.attach(3, [3000, port]))).message, `${port} is no port`)
        }
        assert.deepStrictEqual(portsOf(yield* network.attach(3, [3000, 3000]), [3000]), [3000])
        yield* network.detach(3)
      }))

    test("sweeps the links that nobody keeps, once, and leaves the others as they are", (network) =>
      Effect.gen(function* () {
        const kept = yield* network.attach(3, [3000])
        yield* network.attach(4, [3000])
        const swept = yield* network.sweep([3, 7])
        if (kept.kind === "tap") assert.deepStrictEqual(swept, [4])
        assert.deepStrictEqual(yield* network.sweep([3]), [])
        assert.deepStrictEqual(yield* network.attach(3, [3000]), kept)
        yield* network.detach(3)
      }))

    test("takes forwards, others and none, and cuts what is open over them", (network) =>
      Effect.gen(function* () {
        yield* network.attach(3, [3000, 4000])
        yield* network.setForwards(3, [{ hostPort: 21025, guestPort: 4000 }])
        yield* network.setForwards(3, [{ hostPort: 21026, guestPort: 4000 }])
        yield* network.setForwards(3, [])
        yield* network.setForwards(3, [])
        yield* network.cut(3)
        yield* network.detach(3)
      }))

    test("takes the forwards of a slot back that is not attached", (network) =>
      Effect.gen(function* () {
        yield* network.setForwards(9, [])
        yield* network.cut(9)
      }))

    test("counts for attached slots only, from nothing on", (network) =>
      Effect.gen(function* () {
        yield* network.attach(3, [3000])
        for (const [slot, traffic] of yield* network.traffic) {
          assert.strictEqual(slot, 3)
          assert.deepStrictEqual(traffic, { bytesIn: 0, bytesOut: 0, arrivals: 0, openFlows: 0 })
        }
        yield* network.detach(3)
        assert.strictEqual((yield* network.traffic).size, 0)
      }))
  })
