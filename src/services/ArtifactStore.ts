/** Objects that the document names, fetched once per digest; the digest is the check. */
import { Context, Effect, type Exit, Schema } from "effect"
import { type StoreError, shownKey } from "./store-errors.ts"

export { StoreRefused, StoreUnavailable, StoreUnusable } from "./store-errors.ts"

/** An object that the document names, as the store is asked for it. */
export interface ObjectReference {
  readonly objectKey: string
  /** sha-256, 64 lowercase hex digits. */
  readonly digest: string
}

export class ObjectMissing extends Schema.TaggedError<ObjectMissing>()("ObjectMissing", {
  objectKey: Schema.String,
  store: Schema.String
}) {
  override get message() {
    return `object ${shownKey(this.objectKey)} is not in the artifact store ${this.store}`
  }
}

export class DigestMismatch extends Schema.TaggedError<DigestMismatch>()("DigestMismatch", {
  objectKey: Schema.String,
  expected: Schema.String,
  actual: Schema.String
}) {
  override get message() {
    return `object ${shownKey(this.objectKey)} has sha-256 ${this.actual}, but the document says ${this.expected}`
  }
}

export type ArtifactStoreError = ObjectMissing | DigestMismatch | StoreError

export class ArtifactStore extends Context.Service<
  ArtifactStore,
  {
    /**
     * The path of a local file with exactly these bytes. Fetched once per digest, however many ask at the
     * same time; a file that was half written when the daemon died never counts. The file is read-only and
     * belongs to the cache.
     */
    readonly fetch: (object: ObjectReference) => Effect.Effect<string, ArtifactStoreError>
  }
>()("nibrunner/services/ArtifactStore") {}

/** One fetch from the store, that of an object which was not in the cache. */
export interface Fetched {
  /** Bytes that came, those of a fetch that failed included. */
  readonly bytes: number
  readonly seconds: number
  readonly exit: Exit.Exit<unknown, ArtifactStoreError>
}

/**
 * Is told of the fetches that an effect leads to, by whoever provides it to that effect; by default nobody is. Of
 * several who ask for one object at the same time the first is told.
 */
export const FetchObserver = Context.Reference<(fetched: Fetched) => Effect.Effect<void>>(
  "nibrunner/services/FetchObserver",
  { defaultValue: () => () => Effect.void }
)

/** How far a fetch from the store has come. */
export interface Fetching {
  readonly objectKey: string
  readonly bytes: number
  /** Absent as long as the store has not said it. */
  readonly totalBytes?: number
}

/**
 * Is told how a fetch goes that an effect waits for, by whoever provides it to that effect: when the first bytes
 * have come, then at most once a second. Of several who wait for one object each is told. By default nobody is.
 */
export const FetchProgress = Context.Reference<(fetching: Fetching) => Effect.Effect<void>>(
  "nibrunner/services/FetchProgress",
  { defaultValue: () => () => Effect.void }
)
