import { Result } from "effect"
import { checkDocument, type DocumentIssue, MAX_WARNINGS, SECRET_KEYS } from "../document/decode.ts"
import { readJson } from "../document/json-reader.ts"
import { namesIn } from "../document/names.ts"
import { HostDesiredState } from "../document/schema.ts"
import { unrunnableIn } from "../reconcile/unrunnable.ts"
import type { Range } from "./source-line.ts"
import type { FileIssue, Verdict } from "./verdict.ts"

// Written as one text, a command holds its arguments.
const secretScalars: ReadonlySet<string> = new Set(["command"])

/** What a document hides; and where it stops being JSON, also the names of it and all that follows. */
const hiddenIn = (text: string): ReadonlyArray<Range> => {
  // Below a key that is not known may be anything: a misspelt `environment` too.
  const shownKeys = new Set(namesIn(HostDesiredState.ast).filter((name) => !SECRET_KEYS.has(name)))
  const { secretNames, secrets, syntaxError } = readJson(text, { shownKeys, secretScalars })
  return syntaxError === undefined
    ? secrets
    : [...secrets, ...secretNames, [syntaxError.offset, text.length] as const].sort((a, b) => a[0] - b[0])
}

const placed = (issues: ReadonlyArray<DocumentIssue>): ReadonlyArray<FileIssue> =>
  issues.map((issue) => ({ line: 1, column: 1, ...issue }))

/** What is wrong with a `desired.json`. */
export const judgeDocument = (bytes: Uint8Array): Verdict => {
  const { decoded, warnings } = checkDocument(bytes, (document) => unrunnableIn(document, MAX_WARNINGS))
  if (Result.isSuccess(decoded) && warnings.length === 0)
    return { kind: "desired", issues: [], warnings: [], truncated: false, text: "", hidden: () => [] }
  const text = new TextDecoder().decode(bytes)
  return {
    kind: "desired",
    issues: Result.isFailure(decoded) ? placed(decoded.failure.issues) : [],
    warnings: placed(warnings),
    truncated: Result.isFailure(decoded) && decoded.failure.truncated,
    text,
    hidden: () => hiddenIn(text)
  }
}
