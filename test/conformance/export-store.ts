/** What every store of exports must do. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, type Layer, type Scope, Stream } from "effect"
import { ExportStore, type Storing } from "../../src/services/ExportStore.ts"

export interface ExportStoreHarness {
  /** Each build is a daemon's start on the same store. */
  readonly layer: Layer.Layer<ExportStore, unknown>
  /** The object's bytes; undefined when there is none. */
  readonly read: (objectKey: string) => Effect.Effect<Uint8Array | undefined>
  /** Everything that lies in the store and is no object: what was half stored. */
  readonly leftovers: Effect.Effect<ReadonlyArray<string>>
  /** Keys that this store has no place for. */
  readonly impossible: ReadonlyArray<string>
}

const MIB = 2 ** 20

const text = (value: string) => new TextEncoder().encode(value)

const put = (...args: Parameters<ExportStore["Service"]["put"]>) =>
  ExportStore.use((store) => store.put(...args)) as Effect.Effect<
    { readonly sizeBytes: number },
    { readonly _tag: string; readonly message: string },
    ExportStore
  >

/** Bytes that are the same nowhere, in pieces of uneven sizes. */
const pieces = (length: number, pieceBytes: number): Array<Uint8Array> => {
  const all = Buffer.alloc(length)
  for (let at = 0; at + 4 <= length; at += 4) all.writeUInt32LE((at * 2_654_435_761) >>> 0, at)
  const cut: Array<Uint8Array> = []
  for (let at = 0; at < length; at += pieceBytes) cut.push(all.subarray(at, at + pieceBytes))
  return cut
}

const same = (found: Uint8Array | undefined, expected: ReadonlyArray<Uint8Array>) =>
  assert.isTrue(Buffer.concat(expected).equals(found ?? text("nothing is there")))

export const exportStoreConformance = (
  name: string,
  make: Effect.Effect<ExportStoreHarness, unknown, Scope.Scope>
) =>
  describe(`${name} as a store of exports`, () => {
    const test = (
      sentence: string,
      body: (harness: ExportStoreHarness) => Effect.Effect<void, unknown, ExportStore | Scope.Scope>
    ) =>
      it.live(sentence, () =>
        Effect.flatMap(make, (harness) => body(harness).pipe(Effect.provide(harness.layer)))
      )

    test("stores what the stream gives, and says how much it was", ({ read, leftovers }) =>
      Effect.gen(function* () {
        const key = "exports/app 1/ünïcode/bundle.tar.gz"
        const contents = pieces(300_001, 1000)
        assert.deepStrictEqual(yield* put(key, Stream.fromArray(contents)), { sizeBytes: 300_001 })
        same(yield* read(key), contents)
        assert.deepStrictEqual(yield* leftovers, [])
      }))

    test("stores an empty object", ({ read }) =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* put("empty", Stream.empty), { sizeBytes: 0 })
        assert.strictEqual((yield* read("empty"))?.length, 0)
      }))

    test("stores what is larger than any part of it, from a producer that uses its buffer again", ({
      read,
      leftovers
    }) =>
      Effect.gen(function* () {
        const contents = pieces(41 * MIB + 17, 700_001)
        const buffer = new Uint8Array(700_001)
        const reusing = Stream.fromArray(contents).pipe(
          Stream.rechunk(1),
          Stream.map((piece) => {
            buffer.set(piece)
            return buffer.subarray(0, piece.length)
          })
        )
        assert.deepStrictEqual(yield* put("large", reusing), { sizeBytes: 41 * MIB + 17 })
        same(yield* read("large"), contents)
        assert.deepStrictEqual(yield* leftovers, [])
      }))

    test("replaces an object, and only once the new one is whole", ({ read }) =>
      Effect.gen(function* () {
        yield* put("bundle", Stream.succeed(text("the first")))
        const half = yield* Deferred.make<void>()
        const rest = yield* Deferred.make<void>()
        const contents = Stream.concat(
          Stream.succeed(text("the ")),
          Stream.fromEffect(
            Deferred.succeed(half, undefined).pipe(
              Effect.andThen(Deferred.await(rest)),
              Effect.as(text("second"))
            )
          )
        )
        const fiber = yield* Effect.forkChild(put("bundle", contents))
        yield* Deferred.await(half)
        same(yield* read("bundle"), [text("the first")])
        yield* Deferred.succeed(rest, undefined)
        yield* Fiber.join(fiber)
        same(yield* read("bundle"), [text("the second")])
      }))

    for (const [when, before] of [
      ["at its first bytes", []],
      ["far into it", pieces(36 * MIB, MIB)]
    ] as const) {
      test(`keeps the old object and nothing of the new when the producer fails ${when}`, ({
        read,
        leftovers
      }) =>
        Effect.gen(function* () {
          yield* put("bundle", Stream.succeed(text("the first")))
          const broken = Stream.concat(
            Stream.fromArray(before),
            Stream.fail({ _tag: "Broken", message: "it broke" })
          )
          const error = yield* Effect.flip(put("bundle", broken))
          assert.deepStrictEqual(error, { _tag: "Broken", message: "it broke" })
          same(yield* read("bundle"), [text("the first")])
          assert.deepStrictEqual(yield* leftovers, [])
        }))

      test(`keeps the old object and nothing of the new when it is interrupted ${when}`, ({
        read,
        leftovers
      }) =>
        Effect.gen(function* () {
          yield* put("bundle", Stream.succeed(text("the first")))
          const reached = yield* Deferred.make<void>()
          const stuck = Stream.concat(
            Stream.fromArray(before),
            Stream.fromEffect(Effect.andThen(Deferred.succeed(reached, undefined), Effect.never))
          )
          const fiber = yield* Effect.forkChild(put("bundle", stuck))
          yield* Deferred.await(reached)
          yield* Fiber.interrupt(fiber)
          same(yield* read("bundle"), [text("the first")])
          assert.deepStrictEqual(yield* leftovers, [])
        }))
    }

    test("tells how much is stored, never less than before and at last all of it", () =>
      Effect.gen(function* () {
        const told: Array<Storing> = []
        yield* put("bundle", Stream.fromArray(pieces(20 * MIB, MIB)), {
          onProgress: (storing) => Effect.sync(() => void told.push(storing))
        })
        assert.deepStrictEqual(told.at(-1), { objectKey: "bundle", bytes: 20 * MIB })
        const bytes = told.map((storing) => storing.bytes)
        assert.deepStrictEqual(
          bytes,
          bytes.toSorted((a, b) => a - b)
        )
      }))

    test("stores under several keys at the same time", ({ read }) =>
      Effect.gen(function* () {
        const keys = Array.from({ length: 8 }, (_, n) => `exports/${n % 2}/${n}`)
        yield* Effect.forEach(keys, (key) => put(key, Stream.succeed(text(key))), {
          concurrency: "unbounded"
        })
        for (const key of keys) same(yield* read(key), [text(key)])
      }))

    it.live("refuses by name a key that it has no place for, before it reads anything", () =>
      Effect.flatMap(make, ({ impossible, layer, leftovers }) =>
        Effect.gen(function* () {
          for (const objectKey of impossible) {
            const contents = Stream.fromEffect(Effect.die(new Error("the contents were read")))
            const error = yield* Effect.flip(put(objectKey, contents))
            assert.strictEqual(error._tag, "StoreUnusable", objectKey.slice(0, 40))
            assert.include(error.message, " cannot be stored: ")
          }
          assert.deepStrictEqual(yield* leftovers, [])
        }).pipe(Effect.provide(layer))
      )
    )
  })
