/** What the page tells of fetched layers, over the real cache. */
import { createHash } from "node:crypto"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Fiber, Layer } from "effect"
import { layerDirectoryStore } from "../../../layers/store/directory.ts"
import { makeHostMetrics } from "../../../src/metrics/host-metrics.ts"
import { ArtifactStore } from "../../../src/services/ArtifactStore.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const setUp = Effect.gen(function* () {
  const folder = yield* temporaryDirectory
  const stateDir = join(folder, "state")
  const object = (objectKey: string, bytes: Uint8Array) => {
    writeFileSync(join(folder, objectKey), bytes)
    return { objectKey, digest: createHash("sha256").update(bytes).digest("hex") }
  }
  const services = yield* Layer.build(layerDirectoryStore({ storeDirectory: folder, stateDir }))
  const store = Context.get(services, ArtifactStore)
  const metrics = yield* makeHostMetrics
  const count = (outcome: string) =>
    metrics.counts.storage.distributions.get(`operation="layer_fetch",outcome="${outcome}"`)?.count ?? 0
  return { store, metrics, object, count }
})

describe("what is counted of layers", () => {
  it.live("is a fetch with its bytes the first time, and a cached layer from then on", () =>
    Effect.gen(function* () {
      const { store, metrics, object, count } = yield* setUp
      const layer = object("layer", new Uint8Array(3 * 2 ** 20))
      yield* metrics.layer(store.fetch(layer))
      assert.deepStrictEqual([count("ok"), metrics.counts.layerFetchBytes], [1, 3 * 2 ** 20])
      assert.strictEqual(metrics.counts.layersCached, 0)
      yield* metrics.layer(store.fetch(layer))
      assert.deepStrictEqual([count("ok"), metrics.counts.layerFetchBytes], [1, 3 * 2 ** 20])
      assert.strictEqual(metrics.counts.layersCached, 1)
    })
  )

  it.live("is one fetch for all who ask at the same time", () =>
    Effect.gen(function* () {
      const { store, metrics, object, count } = yield* setUp
      const layer = object("layer", new Uint8Array(2 ** 20))
      const asks = yield* Effect.forEach([1, 2, 3, 4], () =>
        Effect.forkChild(metrics.layer(store.fetch(layer)))
      )
      yield* Effect.forEach(asks, Fiber.join)
      assert.deepStrictEqual([count("ok"), metrics.counts.layerFetchBytes], [1, 2 ** 20])
      assert.strictEqual(metrics.counts.layersCached, 3)
    })
  )

  it.live("is a failed fetch, with the bytes that came, when the digest does not match", () =>
    Effect.gen(function* () {
      const { store, metrics, object, count } = yield* setUp
      const layer = { ...object("layer", new Uint8Array(1000)), digest: "f".repeat(64) }
      const error = yield* Effect.flip(metrics.layer(store.fetch(layer)))
      assert.strictEqual(error._tag, "DigestMismatch")
      assert.deepStrictEqual([count("ok"), count("failed"), metrics.counts.layerFetchBytes], [0, 1, 1000])
      assert.strictEqual(metrics.counts.layersCached, 0)
    })
  )
})
