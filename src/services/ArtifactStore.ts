/** Objects that the document names, fetched once per digest; the digest is the check. */
import { Context, type Effect, Schema } from "effect"

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
    return `object ${JSON.stringify(this.objectKey)} is not in the artifact store ${this.store}`
  }
}

export class DigestMismatch extends Schema.TaggedError<DigestMismatch>()("DigestMismatch", {
  objectKey: Schema.String,
  expected: Schema.String,
  actual: Schema.String
}) {
  override get message() {
    return `object ${JSON.stringify(this.objectKey)} has sha-256 ${this.actual}, but the document says ${this.expected}`
  }
}

export class StoreUnusable extends Schema.TaggedError<StoreUnusable>()("StoreUnusable", {
  objectKey: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `object ${JSON.stringify(this.objectKey)} cannot be fetched: ${this.reason}`
  }
}

export type ArtifactStoreError = ObjectMissing | DigestMismatch | StoreUnusable

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
