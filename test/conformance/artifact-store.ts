/** What every artifact store must do. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, type Layer, type Scope } from "effect"
import { ArtifactStore, type ObjectReference } from "../../src/services/ArtifactStore.ts"

export interface ArtifactStoreHarness {
  /** Each build is a daemon's start on the same store and cache. */
  readonly layer: Layer.Layer<ArtifactStore, unknown>
  /** Puts an object into the store. */
  readonly put: (objectKey: string, bytes: Uint8Array) => Effect.Effect<ObjectReference>
  readonly remove: (objectKey: string) => Effect.Effect<void>
  /** Reads a file that `fetch` gave. */
  readonly read: (path: string) => Effect.Effect<Uint8Array>
}

const text = (value: string) => new TextEncoder().encode(value)

const fetch = (object: ObjectReference) => ArtifactStore.use((store) => store.fetch(object))

export const artifactStoreConformance = (
  name: string,
  make: Effect.Effect<ArtifactStoreHarness, unknown, Scope.Scope>
) =>
  describe(`${name} as an artifact store`, () => {
    const test = (
      sentence: string,
      body: (harness: ArtifactStoreHarness) => Effect.Effect<void, unknown, ArtifactStore | Scope.Scope>
    ) =>
      it.live(sentence, () =>
        Effect.flatMap(make, (harness) => body(harness).pipe(Effect.provide(harness.layer)))
      )

    test("gives a file with exactly the object's bytes", ({ put, read }) =>
      Effect.gen(function* () {
        const bytes = new Uint8Array(3_000_001).map((_, index) => index % 251)
        const object = yield* put("releases/app 1/ünïcode", bytes)
        assert.isTrue(Buffer.from(bytes).equals(yield* read(yield* fetch(object))))
      }))

    test("gives an empty file for an empty object", ({ put, read }) =>
      Effect.gen(function* () {
        const object = yield* put("empty", text(""))
        assert.strictEqual((yield* read(yield* fetch(object))).length, 0)
      }))

    test("says by name that an object is missing, and finds it once it is there", ({ put, remove }) =>
      Effect.gen(function* () {
        const object = yield* put("seeds/app-1", text("later"))
        yield* remove("seeds/app-1")
        const error = yield* Effect.flip(fetch(object))
        assert.strictEqual(error._tag, "ObjectMissing")
        assert.include(error.message, `"seeds/app-1"`)
        yield* put("seeds/app-1", text("later"))
        yield* fetch(object)
      }))

    test("refuses bytes whose digest does not match, naming both digests, and keeps nothing of them", ({
      put,
      read
    }) =>
      Effect.gen(function* () {
        const wanted = yield* put("app", text("good"))
        const found = yield* put("app", text("evil"))
        const error = yield* Effect.flip(fetch(wanted))
        assert.strictEqual(error._tag, "DigestMismatch")
        assert.include(error.message, wanted.digest)
        assert.include(error.message, found.digest)
        yield* put("app", text("good"))
        assert.deepStrictEqual([...(yield* read(yield* fetch(wanted)))], [...text("good")])
      }))

    test("asks the store once: a fetched object is had without it, also after a restart", ({
      put,
      remove,
      layer
    }) =>
      Effect.gen(function* () {
        const object = yield* put("app", text("once"))
        const path = yield* fetch(object)
        yield* remove("app")
        assert.strictEqual(yield* fetch(object), path)
        assert.strictEqual(yield* fetch({ ...object, objectKey: "never-existed" }), path)
        assert.strictEqual(yield* Effect.scoped(fetch(object).pipe(Effect.provide(layer))), path)
      }))

    test("gives the same file to all who ask at the same time", ({ put }) =>
      Effect.gen(function* () {
        const object = yield* put("app", new Uint8Array(500_000).fill(7))
        const paths = yield* Effect.all(
          Array.from({ length: 20 }, () => fetch(object)),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(new Set(paths).size, 1)
      }))

    test("serves the others when one who asked goes away", ({ put, read }) =>
      Effect.gen(function* () {
        const object = yield* put("app", new Uint8Array(8_000_000).fill(1))
        const first = yield* Effect.forkChild(fetch(object), { startImmediately: true })
        const second = yield* Effect.forkChild(fetch(object), { startImmediately: true })
        yield* Fiber.interrupt(first)
        assert.strictEqual((yield* read(yield* Fiber.join(second))).length, 8_000_000)
      }))

    test("can be asked again after the only one who asked has gone away", ({ put, read }) =>
      Effect.gen(function* () {
        const object = yield* put("app", new Uint8Array(8_000_000).fill(1))
        const first = yield* Effect.forkChild(fetch(object), { startImmediately: true })
        yield* Fiber.interrupt(first)
        assert.strictEqual((yield* read(yield* fetch(object))).length, 8_000_000)
      }))

    test("does not let one key's error become another's, though both name one digest", ({ put }) =>
      Effect.gen(function* () {
        const object = yield* put("right", text("bytes"))
        const [wrong, right] = yield* Effect.all(
          [Effect.flip(fetch({ ...object, objectKey: "wrong" })), fetch(object)],
          { concurrency: "unbounded" }
        )
        assert.strictEqual(wrong.objectKey, "wrong")
        assert.isString(right)
      }))

    for (const objectKey of [
      "..",
      "../secret",
      "a/../../secret",
      "/etc/hostname",
      "a//b",
      "./a",
      "a/",
      "a\0b",
      "é".repeat(1024)
    ]) {
      test(`has no object ${JSON.stringify(objectKey.slice(0, 20))}`, () =>
        Effect.gen(function* () {
          const error = yield* Effect.flip(fetch({ objectKey, digest: "0".repeat(64) }))
          assert.include(["ObjectMissing", "StoreUnusable"], error._tag)
          assert.strictEqual(error.objectKey, objectKey)
        }))
    }
  })
