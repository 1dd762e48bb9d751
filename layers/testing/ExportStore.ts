/** A store of exports in memory. */
import { Effect, Layer, Stream } from "effect"
import { ExportStore, type ExportStoreError } from "../../src/services/ExportStore.ts"
import { Script } from "./Script.ts"

/** What outlives the layer, as a store does. */
export interface ExportWorld {
  readonly objects: Map<string, Uint8Array>
  /** `put` is one call of the service, `write` the part of it after the contents were read. The subject is the key. */
  readonly script: Script<{ put: ExportStoreError; write: ExportStoreError }>
}

export const makeExportWorld = (): ExportWorld => ({ objects: new Map(), script: new Script() })

export const layerExportStoreMemory = (world: ExportWorld) =>
  Layer.succeed(ExportStore, {
    put: <E, R>(
      objectKey: string,
      contents: Stream.Stream<Uint8Array, E, R>,
      { onProgress }: Parameters<ExportStore["Service"]["put"]>[2] = {}
    ) =>
      world.script.around(
        "put",
        objectKey,
        Effect.gen(function* () {
          const pieces: Array<Uint8Array> = []
          yield* Stream.runForEach(contents, (piece) => Effect.sync(() => void pieces.push(piece.slice())))
          const bytes = Buffer.concat(pieces)
          yield* world.script.around(
            "write",
            objectKey,
            Effect.sync(() => world.objects.set(objectKey, new Uint8Array(bytes)))
          )
          if (onProgress !== undefined) yield* onProgress({ objectKey, bytes: bytes.length })
          return { sizeBytes: bytes.length }
        })
      )
  })
