/**
 * From readings of `desired.json` to the document in force.
 *
 * A reading that cannot be accepted, or that finds no file, changes nothing: the last good document stays in force
 * and the report says why. A document is written to the host's notes before anything acts on it.
 */
import { Clock, Effect, Option, Result, Stream } from "effect"
import { decodeDocument, decodeWithText } from "../document/decode.ts"
import type { HostDesiredState } from "../document/schema.ts"
import { type HostMetrics, type ReconcileTrigger, timed } from "../metrics/host-metrics.ts"
import { type DocumentReading, DocumentSource } from "../services/DocumentSource.ts"
import { HostState } from "../services/HostState.ts"

/** The document in force. */
export interface DocumentInForce {
  readonly document: HostDesiredState
  readonly digest: string
}

export interface DocumentWatchOptions {
  readonly metrics: HostMetrics
  /** A document was accepted that differs from the one in force. */
  readonly onAccepted: (accepted: DocumentInForce) => Effect.Effect<void>
  /** Why the last reading is not in force; undefined when it is. */
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

/**
 * A writer that does not rename may be in the middle of its work: what does not read well, or is gone, is read
 * once more.
 */
const secondLookMs = 100

const revisionOf = ({ document: { revision } }: DocumentInForce): string =>
  revision === undefined ? "" : ` (revision ${revision})`

type Judgement =
  | { readonly kind: "nothing-new" }
  | { readonly kind: "absent" }
  | { readonly kind: "refused"; readonly reason: string; readonly digest: string | undefined }
  | { readonly kind: "accepted"; readonly accepted: DocumentInForce; readonly text: string }

/** Runs for ever: reads, judges, accepts. */
export const watchDocument = Effect.fnUntraced(function* (
  inForce: DocumentInForce | undefined,
  options: DocumentWatchOptions
) {
  const source = yield* DocumentSource
  const state = yield* HostState
  let accepted = inForce
  let refused: Extract<Judgement, { readonly kind: "refused" }> | undefined
  let absent = false

  const judge = (reading: DocumentReading): Judgement => {
    if (reading.kind === "absent") return { kind: "absent" }
    if (reading.kind === "unreadable") return { kind: "refused", reason: reading.reason, digest: undefined }
    // The same bytes get the same answer: a file that lies there is not decoded again every 30 s.
    if (reading.digest === accepted?.digest) return { kind: "nothing-new" }
    if (refused !== undefined && reading.digest === refused.digest) return refused
    const { digest, bytes } = reading
    // What is the same as in the document in force is the very same object: the difference sees it at a glance.
    const judged = Result.try({
      try: () => decodeWithText(bytes, accepted?.document),
      catch: (defect) => `it cannot be judged, by a fault of nibrunnerd itself: ${String(defect)}`
    })
    // Whoever writes documents ends no host with one.
    if (Result.isFailure(judged)) return { kind: "refused", reason: judged.failure, digest }
    const decoded = judged.success
    return Result.isSuccess(decoded)
      ? {
          kind: "accepted",
          accepted: { document: decoded.success.document, digest },
          text: decoded.success.text
        }
      : { kind: "refused", reason: decoded.failure.message, digest }
  }

  const refuse = Effect.fnUntraced(function* (judgement: Extract<Judgement, { readonly kind: "refused" }>) {
    const sentence = `${source.path} is refused: ${judgement.reason}`
    if (refused?.reason !== judgement.reason) yield* Effect.logWarning(sentence)
    refused = judgement
    yield* options.onVerdict(sentence)
  })

  const miss = Effect.fnUntraced(function* () {
    const sentence =
      accepted === undefined
        ? `waits for the first document: there is no ${source.path} yet`
        : `${source.path} is gone; the document that was accepted last${revisionOf(accepted)} stays in force`
    if (!absent) yield* accepted === undefined ? Effect.logInfo(sentence) : Effect.logWarning(sentence)
    absent = true
    refused = undefined
    yield* options.onVerdict(sentence)
  })

  /** Gives what the reading was to the host; nothing when it was of no use. */
  const act = Effect.fnUntraced(function* (
    judgement: Judgement
  ): Effect.fn.Return<ReconcileTrigger | undefined> {
    if (absent && judgement.kind !== "absent") {
      absent = false
      yield* Effect.logInfo(`${source.path} is there`)
    }
    switch (judgement.kind) {
      case "absent":
        yield* miss()
        return undefined
      case "nothing-new":
        refused = undefined
        yield* options.onVerdict(undefined)
        return "tick"
      case "refused":
        yield* options.metrics.documentUnreadable
        yield* refuse(judgement)
        return undefined
      case "accepted": {
        const { document, digest } = judgement.accepted
        const written = yield* Effect.result(
          state.accept({ hostId: document.hostId, digest, text: judgement.text })
        )
        // Not the document's fault: the same bytes are tried again at the next reading.
        if (Result.isFailure(written)) {
          yield* refuse({ kind: "refused", reason: written.failure.message, digest: undefined })
          return undefined
        }
        accepted = judgement.accepted
        refused = undefined
        yield* options.onVerdict(undefined)
        yield* options.onAccepted(judgement.accepted)
        return "change"
      }
    }
  })

  const secondLook = Effect.andThen(Effect.sleep(secondLookMs), source.read)

  const look = Effect.fnUntraced(function* (first: DocumentReading) {
    const vanished = first.kind === "absent" && !absent && accepted !== undefined
    const reading = vanished ? yield* secondLook : first
    const judgement = judge(reading)
    const isNews = judgement.kind === "refused" && judgement !== refused
    return yield* act(isNews ? judge(yield* secondLook) : judgement)
  })

  const take = Effect.fnUntraced(function* (reading: DocumentReading) {
    const [seconds, trigger] = yield* timed(look(reading))
    if (trigger !== undefined) {
      yield* options.metrics.reconciled(trigger, seconds, yield* Clock.currentTimeMillis)
    }
  })

  yield* Stream.runForEach(source.readings, take)
})
