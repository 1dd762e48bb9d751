import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { HostType } from "../../../src/wire/records.ts"
import { begin, scriptedGuest } from "./scripted.ts"

const fork = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.forkChild(effect, { startImmediately: true })

describe("a volume that is frozen over virtio-serial", () => {
  it.live("is asked for with its lease, and waited for until the guest says that it is frozen", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const freeze = yield* fork(session.freezeVolume(30_000))
      assert.deepStrictEqual(yield* first.next, { kind: "freeze-volume", leaseMs: 30_000 })
      assert.isUndefined(freeze.pollUnsafe())
      first.send({ kind: "receipt", of: HostType.freezeVolume, outcome: "taken" })
      yield* Fiber.join(freeze)
    })
  )

  it.live("is refused by a guest that cannot now, and given up on when it takes longer than its lease", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      const refused = yield* fork(Effect.flip(session.freezeVolume(30_000)))
      yield* first.next
      first.send({ kind: "receipt", of: HostType.freezeVolume, outcome: "not-now" })
      assert.include((yield* Fiber.join(refused)).message, "freeze its volume: it cannot do that")
      const late = yield* Effect.flip(session.freezeVolume(50))
      assert.include(late.message, "freeze its volume: it said nothing in 50 ms")
    })
  )

  it.live("is thawed with the word whether it had held", () =>
    Effect.gen(function* () {
      const [session, first] = yield* begin(yield* scriptedGuest)
      for (const [outcome, said] of [
        ["taken", "held"],
        ["not-now", "lapsed"]
      ] as const) {
        const thaw = yield* fork(session.thawVolume)
        assert.deepStrictEqual(yield* first.next, { kind: "thaw-volume" })
        first.send({ kind: "receipt", of: HostType.thawVolume, outcome })
        assert.strictEqual(yield* Fiber.join(thaw), said)
      }
    })
  )

  it.live("is thawed over the next connection when one is lost, and then not believed to have held", () =>
    Effect.gen(function* () {
      const guest = yield* scriptedGuest
      const [session, first] = yield* begin(guest)
      const thaw = yield* fork(session.thawVolume)
      yield* first.next
      first.socket.destroy()
      const second = yield* guest.accept
      yield* second.greet("running")
      assert.deepStrictEqual(yield* second.next, { kind: "thaw-volume" })
      second.send({ kind: "receipt", of: HostType.thawVolume, outcome: "taken" })
      assert.strictEqual(yield* Fiber.join(thaw), "lapsed")
    })
  )

  it.live(
    "is nothing that an older guest is asked for: there is a reason for the one, and nothing to thaw",
    () =>
      Effect.gen(function* () {
        const [session, first] = yield* begin(yield* scriptedGuest, "running", 1)
        const error = yield* Effect.flip(session.freezeVolume(30_000))
        assert.strictEqual(
          error.message,
          "the guest could not be asked to freeze its volume: its guest image is too old for that; it has the present one after the app's next boot"
        )
        assert.strictEqual(yield* session.thawVolume, "lapsed")
        // it was told of neither: the next it hears is this
        const freeze = yield* fork(session.freeze(30_000))
        assert.deepStrictEqual(yield* first.next, { kind: "freeze", leaseMs: 30_000 })
        first.send({ kind: "receipt", of: HostType.freeze, outcome: "taken" })
        yield* Fiber.join(freeze)
      })
  )
})
