/** What is wrong with a file that may be a `desired.json` or a `config.toml`. */
import { Result } from "effect"
import { decodeConfig } from "../config/decode.ts"
import { secretRanges as secretsOfConfig } from "../config/secrets.ts"
import { decodeDocument, SECRET_KEYS } from "../document/decode.ts"
import { readJson } from "../document/json-reader.ts"
import { namesIn } from "../document/names.ts"
import { HostDesiredState } from "../document/schema.ts"
import type { Range } from "./source-line.ts"

export const fileKinds = ["desired", "config"] as const
export type FileKind = (typeof fileKinds)[number]

export interface FileIssue {
  /** A JSON pointer, or for a configuration the dotted key. */
  readonly path: string
  readonly message: string
  readonly line: number
  readonly column: number
}

export interface Verdict {
  readonly kind: FileKind
  readonly issues: ReadonlyArray<FileIssue>
  /** There are more issues than are listed. */
  readonly truncated: boolean
  readonly text: string
  /** What of the text must not be shown, in order; asked for only when there are issues. */
  readonly hidden: () => ReadonlyArray<Range>
}

const lenient = new TextDecoder()

/** JSON starts with an object. What starts otherwise is told by its name, and without one taken for TOML. */
export const kindOf = (file: string, bytes: Uint8Array): FileKind => {
  const start = lenient.decode(bytes.subarray(0, 4096)).trimStart()
  if (start.startsWith("{")) return "desired"
  return file.endsWith(".json") ? "desired" : "config"
}

// Below a key that is not known may be anything: a misspelt `environment` too.
const shownKeys: ReadonlySet<string> = new Set(
  namesIn(HostDesiredState.ast).filter((name) => !SECRET_KEYS.has(name))
)
// Written as one text, a command holds its arguments.
const secretScalars: ReadonlySet<string> = new Set(["command"])

/** What a document hides; and where it stops being JSON, also the names of it and all that follows. */
const secretsOfDocument = (text: string): ReadonlyArray<Range> => {
  const { secretNames, secrets, syntaxError } = readJson(text, { shownKeys, secretScalars })
  return syntaxError === undefined
    ? secrets
    : [...secrets, ...secretNames, [syntaxError.offset, text.length] as const].sort((a, b) => a[0] - b[0])
}

const ofDocument = (bytes: Uint8Array): Verdict => {
  const decoded = decodeDocument(bytes)
  const text = Result.isSuccess(decoded) ? "" : lenient.decode(bytes)
  return {
    kind: "desired",
    issues: Result.isSuccess(decoded)
      ? []
      : decoded.failure.issues.map((issue) => ({ line: 1, column: 1, ...issue })),
    truncated: Result.isFailure(decoded) && decoded.failure.truncated,
    text,
    hidden: () => secretsOfDocument(text)
  }
}

const ofConfig = (file: string, bytes: Uint8Array): Verdict => {
  const strict = Result.try(() => new TextDecoder("utf-8", { fatal: true }).decode(bytes))
  const text = Result.getOrElse(strict, () => lenient.decode(bytes))
  const verdict = { kind: "config" as const, truncated: false, text, hidden: () => secretsOfConfig(text) }
  if (Result.isFailure(strict))
    return { ...verdict, issues: [{ path: "", message: "the file is not UTF-8", line: 1, column: 1 }] }
  const decoded = decodeConfig(text, file)
  return { ...verdict, issues: Result.isSuccess(decoded) ? [] : decoded.failure.issues }
}

/** Decodes a file as what it is taken for. */
export const judge = (file: string, bytes: Uint8Array, kind: FileKind): Verdict =>
  kind === "desired" ? ofDocument(bytes) : ofConfig(file, bytes)
