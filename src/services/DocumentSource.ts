/** The file `desired.json`, as it changes. */
import { Context, type Effect, Schema, type Stream } from "effect"

/** What a look at the file found. */
export type DocumentReading =
  /** `digest`: the sha-256 of the bytes in lowercase hex. */
  | { readonly kind: "read"; readonly bytes: Uint8Array; readonly digest: string }
  | { readonly kind: "absent" }
  | { readonly kind: "unreadable"; readonly reason: string }

export class DocumentSourceError extends Schema.TaggedError<DocumentSourceError>()("DocumentSourceError", {
  path: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the document ${this.path} cannot be watched: ${this.reason}`
  }
}

export class DocumentSource extends Context.Service<
  DocumentSource,
  {
    readonly path: string
    /** The file as it is now. */
    readonly read: Effect.Effect<DocumentReading>
    /**
     * The file at once, then again each time it is replaced or written (its directory is watched, so a rename
     * over it is seen), and every 30 s whatever the watch says. The bytes of one are good until the next is asked for.
     */
    readonly readings: Stream.Stream<DocumentReading, DocumentSourceError>
  }
>()("nibrunner/services/DocumentSource") {}
