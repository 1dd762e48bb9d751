import { createHash } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Queue, Stream } from "effect"
import { TestClock } from "effect/testing"
import { makeArtifactCache, type OpenedObject } from "../../../layers/store/cache.ts"
import { type Fetching, FetchProgress, StoreUnusable } from "../../../src/services/ArtifactStore.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const bytes = new TextEncoder().encode("an object")
const digest = createHash("sha256").update(bytes).digest("hex")

const opening = (stream: OpenedObject["bytes"], sizeBytes?: number): OpenedObject => ({
  sizeBytes,
  bytes: stream
})

describe("the cache of artifacts", () => {
  it.live("opens the object once for all who ask while it is fetched, and never again", () =>
    Effect.gen(function* () {
      let opened = 0
      const gate = yield* Deferred.make<void>()
      const fetch = yield* makeArtifactCache(yield* temporaryDirectory, () =>
        Effect.sync(() => {
          opened += 1
          return opening(Stream.fromEffect(Effect.as(Deferred.await(gate), bytes)))
        })
      )
      const fibers = yield* Effect.all(
        Array.from({ length: 50 }, (_, n) =>
          Effect.forkChild(fetch({ objectKey: `key-${n}`, digest }), { startImmediately: true })
        )
      )
      yield* Deferred.succeed(gate, undefined)
      const paths = yield* Effect.forEach(fibers, Fiber.join)
      yield* fetch({ objectKey: "key", digest })
      assert.strictEqual(opened, 1)
      assert.strictEqual(new Set(paths).size, 1)
    })
  )

  it.live("stops a fetch when the last who asked has gone, not before", () =>
    Effect.gen(function* () {
      let opened = 0
      const started = yield* Deferred.make<void>()
      const stopped = yield* Deferred.make<void>()
      const fetch = yield* makeArtifactCache(yield* temporaryDirectory, () =>
        Effect.sync(() => {
          opened += 1
          return opening(
            Stream.fromEffect(
              Deferred.succeed(started, undefined).pipe(
                Effect.andThen(Effect.never),
                Effect.onInterrupt(() => Deferred.succeed(stopped, undefined))
              )
            )
          )
        })
      )
      const object = { objectKey: "key", digest }
      const first = yield* Effect.forkChild(fetch(object), { startImmediately: true })
      const second = yield* Effect.forkChild(fetch(object), { startImmediately: true })
      yield* Deferred.await(started)
      yield* Fiber.interrupt(first)
      assert.isFalse(yield* Deferred.isDone(stopped))
      yield* Fiber.interrupt(second)
      assert.isTrue(yield* Deferred.isDone(stopped))
      assert.strictEqual(opened, 1)
    })
  )

  it.live("tries again after a transfer that failed, and keeps nothing of it", () =>
    Effect.gen(function* () {
      let attempts = 0
      const object = { objectKey: "key", digest }
      const fetch = yield* makeArtifactCache(yield* temporaryDirectory, () =>
        Effect.sync(() => {
          attempts += 1
          return opening(
            attempts === 1
              ? Stream.concat(
                  Stream.succeed(bytes),
                  Stream.fail(new StoreUnusable({ objectKey: "key", reason: "the line went dead" }))
                )
              : Stream.succeed(bytes)
          )
        })
      )
      const error = yield* Effect.flip(fetch(object))
      assert.strictEqual(error.message, `object "key" cannot be fetched: the line went dead`)
      yield* fetch(object)
      assert.strictEqual(attempts, 2)
    })
  )

  it.effect("tells all who wait for an object how far it is, at most once a second", () =>
    Effect.gen(function* () {
      const gates = yield* Effect.all(Array.from({ length: 6 }, () => Deferred.make<void>()))
      const piece = new Uint8Array(1000)
      const whole = Buffer.concat(gates.map(() => piece))
      const object = { objectKey: "key", digest: createHash("sha256").update(whole).digest("hex") }
      const arrived = yield* Queue.unbounded<readonly [who: string, fetching: Fetching]>()
      const fetch = yield* makeArtifactCache(yield* temporaryDirectory, () =>
        Effect.succeed(
          opening(
            Stream.fromArray(gates).pipe(
              Stream.mapEffect((gate) => Effect.as(Deferred.await(gate), piece)),
              Stream.rechunk(1)
            ),
            whole.length
          )
        )
      )
      const fibers = yield* Effect.forEach(["one", "other"], (who) =>
        fetch(object).pipe(
          Effect.provideService(FetchProgress, (fetching) => Queue.offer(arrived, [who, fetching])),
          Effect.forkChild({ startImmediately: true })
        )
      )
      const [first, second, ...more] = gates
      const heard = (bytes: number) =>
        Effect.map(Queue.takeN(arrived, 2), (told) =>
          assert.deepStrictEqual(
            told,
            ["one", "other"].map((who) => [who, { objectKey: "key", bytes, totalBytes: 6000 }])
          )
        )
      yield* Deferred.succeed(first as Deferred.Deferred<void>, undefined)
      yield* heard(1000)
      yield* TestClock.adjust("1 second")
      yield* Deferred.succeed(second as Deferred.Deferred<void>, undefined)
      yield* heard(2000)
      for (const gate of more) yield* Deferred.succeed(gate, undefined)
      yield* Effect.forEach(fibers, Fiber.join)
      assert.strictEqual(yield* Queue.size(arrived), 0)
    })
  )
})
