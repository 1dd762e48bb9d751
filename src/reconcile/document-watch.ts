/**
 * From readings of `desired.json` to the document in force.
 *
 * A reading that cannot be accepted changes nothing: the last good document stays in force and the report says
 * why. A document is written to the host's notes before anything acts on it.
 */
import { Effect, Option, Result, Stream } from "effect"
import { decodeDocument } from "../document/decode.ts"
import type { HostDesiredState } from "../document/schema.ts"
import { type DocumentReading, DocumentSource } from "../services/DocumentSource.ts"
import { HostState } from "../services/HostState.ts"

/** The document in force. */
export interface DocumentInForce {
  readonly document: HostDesiredState
  readonly digest: string
}

export interface DocumentWatchOptions {
  /** A document was accepted that differs from the one in force. */
  readonly onAccepted: (accepted: DocumentInForce) => Effect.Effect<void>
  /** Why the last reading was refused; undefined when it was fine. */
  readonly onVerdict: (refusal: string | undefined) => Effect.Effect<void>
}

/** The document that an earlier daemon accepted; none on a new host. */
export const documentFromNotes = Effect.gen(function* () {
  const state = yield* HostState
  const noted = yield* state.document
  if (Option.isNone(noted)) return undefined
  const decoded = decodeDocument(new TextEncoder().encode(noted.value.text))
  if (Result.isSuccess(decoded)) return { document: decoded.success, digest: noted.value.digest }
  // An older version accepted what this one refuses. Nothing runs that nobody asked for; the file is read next.
  yield* Effect.logWarning(`the document in the host's notes is not one any more: ${decoded.failure.message}`)
  return undefined
})

/** Runs for ever: reads, judges, accepts. */
export const watchDocument = Effect.fnUntraced(function* (
  inForce: DocumentInForce | undefined,
  options: DocumentWatchOptions
) {
  const source = yield* DocumentSource
  const state = yield* HostState
  let accepted = inForce?.digest
  let refused: string | undefined

  const refuse = (reason: string) => {
    const sentence = `${source.path} is refused: ${reason}`
    return Effect.logWarning(sentence).pipe(Effect.andThen(options.onVerdict(sentence)))
  }

  const judge = Effect.fnUntraced(function* (reading: DocumentReading) {
    if (reading.kind === "absent") return
    if (reading.kind === "unreadable") return yield* refuse(reading.reason)
    if (reading.digest === accepted) {
      refused = undefined
      return yield* options.onVerdict(undefined)
    }
    // The same bytes get the same answer: a broken file that lies there is not judged every 30 s.
    if (reading.digest === refused) return
    const decoded = decodeDocument(reading.bytes)
    if (Result.isFailure(decoded)) {
      refused = reading.digest
      return yield* refuse(decoded.failure.message)
    }
    const document = decoded.success
    const text = new TextDecoder().decode(reading.bytes)
    const written = yield* Effect.result(
      state.accept({ hostId: document.hostId, digest: reading.digest, text })
    )
    if (Result.isFailure(written)) return yield* refuse(written.failure.message)
    accepted = reading.digest
    refused = undefined
    yield* options.onVerdict(undefined)
    yield* options.onAccepted({ document, digest: reading.digest })
  })

  yield* Stream.runForEach(source.readings, judge)
})
