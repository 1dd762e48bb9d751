/** A document that a test replaces at will. */
import { createHash } from "node:crypto"
import { Effect, Layer, Queue, Stream } from "effect"
import {
  type DocumentReading,
  DocumentSource,
  type DocumentSourceError
} from "../../src/services/DocumentSource.ts"

/** What outlives the layer, as a disk does: a daemon that starts again reads the document that lies there. */
export interface DocumentWorld {
  current: DocumentReading
  readonly watchers: Set<Queue.Queue<DocumentReading, DocumentSourceError>>
}

export const makeDocumentWorld = (): DocumentWorld => ({ current: { kind: "absent" }, watchers: new Set() })

/** Lets every watcher make this reading, and those that come later too. */
export const putReading = (world: DocumentWorld, reading: DocumentReading): Effect.Effect<void> =>
  Effect.sync(() => {
    world.current = reading
    for (const watcher of world.watchers) Queue.offerUnsafe(watcher, reading)
  })

/** Replaces the document: text as it stands, bytes as they are, any other value as JSON. */
export const putDocument = (world: DocumentWorld, document: unknown): Effect.Effect<void> => {
  const bytes =
    document instanceof Uint8Array
      ? document
      : new TextEncoder().encode(typeof document === "string" ? document : JSON.stringify(document))
  return putReading(world, { kind: "read", bytes, digest: createHash("sha256").update(bytes).digest("hex") })
}

/** Deletes the document. */
export const removeDocument = (world: DocumentWorld): Effect.Effect<void> =>
  putReading(world, { kind: "absent" })

/** Lets every watcher look again at what lies there, as the 30 s re-read does. */
export const readAgain = (world: DocumentWorld): Effect.Effect<void> =>
  Effect.suspend(() => putReading(world, world.current))

/** Ends every watch with this error. */
export const breakWatch = (world: DocumentWorld, error: DocumentSourceError): Effect.Effect<void> =>
  Effect.forEach([...world.watchers], (watcher) => Queue.fail(watcher, error), { discard: true })

export const layerDocumentSourceMemory = (world: DocumentWorld, path = "/memory/desired.json") =>
  Layer.succeed(DocumentSource, {
    path,
    read: Effect.sync(() => world.current),
    readings: Stream.unwrap(
      Effect.acquireRelease(
        Effect.gen(function* () {
          const queue = yield* Queue.unbounded<DocumentReading, DocumentSourceError>()
          Queue.offerUnsafe(queue, world.current)
          world.watchers.add(queue)
          return queue
        }),
        (queue) => Effect.sync(() => world.watchers.delete(queue))
      ).pipe(Effect.map(Stream.fromQueue))
    )
  })
