/** A bucket as an artifact store, and as the store of exports. */
import { Effect, Layer } from "effect"
import { ArtifactStore } from "../../../src/services/ArtifactStore.ts"
import { ExportStore } from "../../../src/services/ExportStore.ts"
import { makeArtifactCache } from "../cache.ts"
import { makeBucket } from "./bucket.ts"
import { openS3Object } from "./download.ts"
import type { S3Settings } from "./settings.ts"
import { putS3Object } from "./upload.ts"

export interface S3ArtifactsOptions {
  readonly settings: S3Settings
  /** Absolute; the cache is `artifacts/` in it. */
  readonly stateDir: string
}

/** Fails when the cache cannot be made. The store is first asked by a fetch. */
export const layerS3Artifacts = ({ settings, stateDir }: S3ArtifactsOptions) =>
  Layer.effect(
    ArtifactStore,
    Effect.gen(function* () {
      const bucket = yield* makeBucket(settings)
      return { fetch: yield* makeArtifactCache(stateDir, openS3Object(bucket)) }
    })
  )

/** The store is first asked by a put. */
export const layerS3Exports = (settings: S3Settings) =>
  Layer.effect(
    ExportStore,
    Effect.map(makeBucket(settings), (bucket) => ({ put: putS3Object(bucket) }))
  )
