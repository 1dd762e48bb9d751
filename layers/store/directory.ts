/** An artifact store that is a directory: an object's key is its path in it. */
import * as path from "node:path"
import { Effect, Layer, Stream } from "effect"
import { ArtifactStore, type ArtifactStoreError, StoreUnusable } from "../../src/services/ArtifactStore.ts"
import { onFile } from "../files/problem.ts"
import { makeArtifactCache } from "./cache.ts"
import { openObjectFile } from "./object-file.ts"

const PIECE = 1 << 20

export interface DirectoryStoreOptions {
  /** Absolute; `artifacts.store_url` of the configuration. */
  readonly storeDirectory: string
  /** Absolute; the cache is `artifacts/` in it. */
  readonly stateDir: string
}

/** Fails when the cache cannot be made. The store itself may be absent: that is said by each fetch. */
export const layerDirectoryStore = (options: DirectoryStoreOptions) =>
  Layer.effect(
    ArtifactStore,
    makeArtifactCache(options.stateDir, (object) =>
      Effect.map(openObjectFile(options.storeDirectory, object.objectKey), ({ file, sizeBytes }) => ({
        sizeBytes,
        bytes: readPieces(file, object.objectKey, path.join(options.storeDirectory, object.objectKey))
      }))
    ).pipe(Effect.map((fetch) => ({ fetch })))
  )

const readPieces = (
  file: { readonly read: (buffer: Uint8Array) => Promise<{ readonly bytesRead: number }> },
  objectKey: string,
  name: string
): Stream.Stream<Uint8Array, ArtifactStoreError> => {
  // One buffer for all pieces: each is hashed and written before the next is read.
  const buffer = Buffer.allocUnsafe(PIECE)
  return Stream.unfold(undefined, () =>
    onFile(name, () => file.read(buffer)).pipe(
      Effect.mapError((problem) => new StoreUnusable({ objectKey, reason: problem.reason })),
      Effect.map(({ bytesRead }) =>
        bytesRead === 0 ? undefined : ([buffer.subarray(0, bytesRead), undefined] as const)
      )
    )
  )
}
