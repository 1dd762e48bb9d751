/** What every network must do. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, type Layer, type Scope } from "effect"
import { slotAddresses } from "../../src/network/addresses.ts"
import { Network } from "../../src/services/Network.ts"

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
        assert.deepStrictEqual(again.ports, [4000, 5000])
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
        assert.deepStrictEqual(before, { host: link.reachAddress, port: 3000 })
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
        assert.deepStrictEqual((yield* network.attach(3, [3000, 3000])).ports, [3000])
        yield* network.detach(3)
      }))
  })
