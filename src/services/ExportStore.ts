/** Where finished exports are put: objects that the daemon writes and never reads. */
import { Context, type Effect, type Stream } from "effect"
import type { StoreError } from "./store-errors.ts"

export { StoreRefused, StoreUnavailable, StoreUnusable } from "./store-errors.ts"

export type ExportStoreError = StoreError

/** How far an object has come into the store. */
export interface Storing {
  readonly objectKey: string
  readonly bytes: number
}

export interface PutOptions {
  /**
   * More bytes than this will hardly come: parts are made so large that it fits. Without it an object on S3 has
   * at most 156 GiB.
   */
  readonly expectedBytes?: number
  /** Is told what the store has of the object, at most once a second and when all of it is there. */
  readonly onProgress?: (storing: Storing) => Effect.Effect<void>
}

export interface Stored {
  readonly sizeBytes: number
}

export class ExportStore extends Context.Service<
  ExportStore,
  {
    /**
     * Stores what the stream gives under the key, of unknown length, with bounded memory. An object of that key is
     * replaced, and only as a whole: when the stream or the store fails, or the caller is interrupted, what was
     * there before is there still and nothing of the new one is left. Once it succeeds the object is durable.
     * The stream is read once; errors of its own come out as they are.
     */
    readonly put: <E, R>(
      objectKey: string,
      contents: Stream.Stream<Uint8Array, E, R>,
      options?: PutOptions
    ) => Effect.Effect<Stored, ExportStoreError | E, R>
  }
>()("nibrunner/services/ExportStore") {}
