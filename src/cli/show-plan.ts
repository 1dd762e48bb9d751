/** Reads a document and the host's notes, foresees, and prints. */
import { Console, Effect, Result, Schema } from "effect"
import { TerminalCapabilities } from "effect/cli"
import { decodeDocument } from "../document/decode.ts"
import { foresee } from "../foresight/foresee.ts"
import { readBounded } from "./bounded-file.ts"
import { verdictJson, verdictListing } from "./check.ts"
import { Failed } from "./failure.ts"
import { hostNow } from "./host-now.ts"
import { safeJson } from "./json.ts"
import { coloured, plain } from "./paint.ts"
import { type Plan, planJson, renderPlan } from "./plan-text.ts"
import { judge } from "./verdict.ts"

/** There is no document to plan with. */
export class DocumentUnreadable extends Schema.TaggedError<DocumentUnreadable>()("DocumentUnreadable", {
  file: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the document ${this.file} cannot be read: ${this.reason}`
  }
}

/** The document is refused, as `nibrunnerd check` would refuse it. */
const refuse = Effect.fnUntraced(function* (file: string, bytes: Uint8Array, json: boolean) {
  const verdict = yield* judge(file, bytes, "desired")
  yield* Console.log(json ? verdictJson(file, verdict) : verdictListing(file, verdict))
  return yield* new Failed()
})

/** Prints what this host would do with the document in the file. */
export const showPlan = Effect.fnUntraced(function* (file: string, json: boolean) {
  const bytes = yield* readBounded(file).pipe(
    Effect.mapError(({ reason }) => new DocumentUnreadable({ file, reason }))
  )
  const document = decodeDocument(bytes)
  if (Result.isFailure(document)) return yield* refuse(file, bytes, json)
  const { host, inForce, isNew } = yield* hostNow
  const plan: Plan = {
    file,
    hostId: document.success.hostId,
    revision: document.success.revision,
    inForce:
      inForce === undefined
        ? undefined
        : {
            hostId: inForce.hostId,
            digest: inForce.digest,
            revision: host.document?.revision,
            same: inForce.text === new TextDecoder().decode(bytes)
          },
    isNew,
    apps: foresee(host, document.success)
  }
  const { canColor } = yield* TerminalCapabilities.TerminalCapabilities
  const paint = canColor ? coloured : plain
  return yield* Console.log(json ? safeJson(planJson(plan)) : renderPlan(plan, paint).join("\n"))
})
