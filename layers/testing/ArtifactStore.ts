/** An artifact store and its cache in memory. */
import { createHash } from "node:crypto"
import { Effect, Layer } from "effect"
import {
  ArtifactStore,
  type ArtifactStoreError,
  DigestMismatch,
  FetchProgress,
  ObjectMissing,
  type ObjectReference
} from "../../src/services/ArtifactStore.ts"
import { makeSharedWork } from "../files/shared-work.ts"
import { Script } from "./Script.ts"

/** What outlives the layer, as a disk does. */
export interface ArtifactWorld {
  /** The store, by object key. */
  readonly objects: Map<string, Uint8Array>
  /** The cache, by the path that `fetch` gives. */
  readonly files: Map<string, Uint8Array>
  /** `read` is one transfer out of the store, `fetch` one call of the service. The subject is the object's key. */
  readonly script: Script<{ fetch: ArtifactStoreError; read: ArtifactStoreError }>
}

export const makeArtifactWorld = (): ArtifactWorld => ({
  objects: new Map(),
  files: new Map(),
  script: new Script()
})

/** Puts an object into the store and gives the reference that a document would hold. */
export const putObject = (
  world: ArtifactWorld,
  objectKey: string,
  contents: string | Uint8Array
): ObjectReference => {
  const bytes = typeof contents === "string" ? new TextEncoder().encode(contents) : contents
  world.objects.set(objectKey, bytes)
  return { objectKey, digest: createHash("sha256").update(bytes).digest("hex") }
}

export const layerArtifactStoreMemory = (world: ArtifactWorld) =>
  Layer.effect(
    ArtifactStore,
    Effect.gen(function* () {
      const shared = yield* makeSharedWork<string, ArtifactStoreError>()

      /** As of a fetch that has come half the way. */
      const tellProgress = ({ objectKey }: ObjectReference) =>
        Effect.flatMap(FetchProgress, (tell) => {
          const totalBytes = world.objects.get(objectKey)?.length
          return totalBytes === undefined
            ? Effect.void
            : tell({ objectKey, bytes: Math.floor(totalBytes / 2), totalBytes })
        })

      const read = (object: ObjectReference) =>
        world.script.around(
          "read",
          object.objectKey,
          Effect.gen(function* () {
            const bytes = world.objects.get(object.objectKey)
            if (bytes === undefined) {
              return yield* new ObjectMissing({ objectKey: object.objectKey, store: "in memory" })
            }
            const actual = createHash("sha256").update(bytes).digest("hex")
            if (actual !== object.digest) {
              return yield* new DigestMismatch({
                objectKey: object.objectKey,
                expected: object.digest,
                actual
              })
            }
            const path = `/memory/artifacts/${object.digest}`
            world.files.set(path, bytes)
            return path
          })
        )

      const fetch = (object: ObjectReference): Effect.Effect<string, ArtifactStoreError> =>
        Effect.suspend(() => {
          const path = `/memory/artifacts/${object.digest}`
          if (world.files.has(path)) return Effect.succeed(path)
          return tellProgress(object).pipe(
            Effect.andThen(shared(object.digest, read(object))),
            Effect.catch((error) =>
              error.objectKey === object.objectKey ? Effect.fail(error) : fetch(object)
            )
          )
        })

      return { fetch: (object) => world.script.around("fetch", object.objectKey, fetch(object)) }
    })
  )
