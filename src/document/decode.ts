/** From the bytes of `desired.json` to a document that the host can act on, or to everything that is wrong with it. */
import { Result, Schema } from "effect"
import * as SchemaJITCompiler from "effect/schema/SchemaJITCompiler"
import { sameJson } from "./difference.ts"
import { positionsOf, readJson } from "./json-reader.ts"
import { type Disclosure, fieldName, type Path, type Problem, problemsOf } from "./problems.ts"
import { quote } from "./quote.ts"
import { ruleProblems, toPointer, variableNameProblems } from "./rules.ts"
import {
  DesiredCheckpoint,
  DesiredExport,
  DesiredInstance,
  DesiredVolume,
  HostDesiredState
} from "./schema.ts"
import { countMembers, duplicateKeys, type JsonText, readDocumentText, type TextProblem } from "./text.ts"
import { unknownFieldProblems } from "./unknown-fields.ts"

/** The most problems of one document that are listed. */
export const MAX_ISSUES = 1000

export const DocumentIssue = Schema.Struct({
  /** RFC 6901. For a missing key the pointer of that key. */
  path: Schema.String,
  message: Schema.String,
  /** 1-based, in code points: where the value is, or the object that lacks the key. */
  line: Schema.optionalKey(Schema.Int),
  column: Schema.optionalKey(Schema.Int)
})
export interface DocumentIssue extends Schema.Schema.Type<typeof DocumentIssue> {}

/** The document is refused whole. `issues` is in the order of the text. */
export class DocumentRefused extends Schema.TaggedError<DocumentRefused>()("DocumentRefused", {
  issues: Schema.Array(DocumentIssue),
  /** There are more problems than `issues` lists. */
  truncated: Schema.Boolean
}) {
  override get message() {
    return summarize(this.issues, this.truncated)
  }
}

const SUMMARY_LENGTH = 400

/** The first problems in one line, and how many more there are. */
export const summarize = (issues: ReadonlyArray<DocumentIssue>, truncated: boolean): string => {
  const shown: Array<string> = []
  let length = 0
  for (const { column, line, message, path } of issues) {
    // Of a text that is no JSON there is no key to name.
    const place = line === undefined ? "" : ` (line ${line}, column ${column})`
    const sentence =
      path === ""
        ? `${message.slice(0, SUMMARY_LENGTH)}${place}`
        : `${path}: ${message}`.slice(0, SUMMARY_LENGTH)
    length += sentence.length
    if (shown.length > 0 && length > SUMMARY_LENGTH) break
    shown.push(sentence)
  }
  const more = issues.length - shown.length
  const rest =
    more === 0 ? "" : `; and ${truncated ? "at least " : ""}${more} more problem${more === 1 ? "" : "s"}`
  return `${shown.join("; ")}${rest}`
}

// ------------------------------------------------------------------------------- what a message may show

/** The keys below which nothing is ever shown: environments and arguments, and what stands where they should be. */
export const SECRET_KEYS: ReadonlySet<string> = new Set(["environment", "args"])

const isSecret = (path: Path) => path.some((key) => SECRET_KEYS.has(String(key)))

const disclosure: Disclosure = {
  secret: isSecret,
  name: (path) =>
    path.at(-2) === "environment" ? `environment variable ${quote(String(path.at(-1)))}` : fieldName(path),
  object: "an object",
  ignoresUnknown: true
}

// -------------------------------------------------------------------------------------------- by its parts

interface PartDecoder {
  readonly first: (input: unknown) => Result.Result<unknown, Schema.SchemaError>
  readonly all: (input: unknown) => Result.Result<unknown, Schema.SchemaError>
  /** The key whose value names an item. */
  readonly id: string
}

const partDecoder = (schema: Schema.Decoder<unknown>, id: string): PartDecoder => ({
  first: Schema.decodeUnknownResult(schema),
  all: Schema.decodeUnknownResult(schema, { errors: "all" }),
  id
})

// A document may have thousands of each; what is decoded once is sooner decoded than compiled.
for (const part of [DesiredVolume, DesiredInstance, DesiredCheckpoint, DesiredExport])
  SchemaJITCompiler.enable(part.ast)

const parts = {
  volumes: partDecoder(DesiredVolume, "volumeId"),
  instances: partDecoder(DesiredInstance, "appId"),
  checkpoints: partDecoder(DesiredCheckpoint, "checkpointId"),
  exports: partDecoder(DesiredExport, "exportId")
} as const
type Part = keyof typeof parts
const partNames = Object.keys(parts) as ReadonlyArray<Part>

const MAX_WIDTH = 10_000

/** Whether some list or object in an item is so wide that all its problems cannot be collected. */
const isWide = (root: unknown): boolean => {
  const open: Array<unknown> = [root]
  for (let value = open.pop(); value !== undefined; value = open.pop()) {
    if (typeof value !== "object" || value === null) continue
    const members = Object.values(value)
    if (members.length > MAX_WIDTH) return true
    for (const member of members) if (typeof member === "object" && member !== null) open.push(member)
  }
  return false
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** The document with its lists emptied: their items are decoded one by one, so that problems stay bounded. */
const withoutItems = (document: unknown): unknown =>
  isObject(document)
    ? {
        ...document,
        ...Object.fromEntries(
          partNames.flatMap((part) => (Array.isArray(document[part]) ? [[part, []]] : []))
        )
      }
    : document

const decodeOuter = Schema.decodeUnknownResult(HostDesiredState, { errors: "all" })

const itemsOf = (document: unknown, part: Part): ReadonlyArray<unknown> => {
  const items = (document as Readonly<Record<string, unknown>> | null | undefined)?.[part]
  return Array.isArray(items) ? items : []
}

const idOf = (item: unknown, part: Part): unknown =>
  (item as Readonly<Record<string, unknown>> | null | undefined)?.[parts[part].id]

/** There may be more than a call can have arguments. */
const append = (problems: Array<Problem>, more: ReadonlyArray<Problem>): void => {
  for (const problem of more) problems.push(problem)
}

/** The items of one list, and their problems, to which `problems` is the place. */
const decodePart = (
  document: unknown,
  part: Part,
  previous: HostDesiredState | undefined,
  problems: Array<Problem>
): ReadonlyArray<unknown> => {
  const { all, first } = parts[part]
  const known = new Map(itemsOf(previous, part).map((item) => [idOf(item, part), item]))
  return itemsOf(document, part).map((item, index) => {
    if (problems.length > MAX_ISSUES) return undefined
    const same = known.get(idOf(item, part))
    if (same !== undefined && sameJson(item, same)) return same
    const decoded = first(item)
    if (Result.isSuccess(decoded)) return decoded.success
    const whole = isWide(item) ? decoded : all(item)
    const failure = Result.isFailure(whole) ? whole.failure : decoded.failure
    append(problems, variableNameProblems(item, [part, index], MAX_ISSUES + 1))
    append(problems, problemsOf(failure.issue, item, disclosure, [part, index]))
    return undefined
  })
}

const decodeValue = (
  value: unknown,
  previous: HostDesiredState | undefined
): Result.Result<HostDesiredState, ReadonlyArray<Problem>> => {
  const problems: Array<Problem> = [...ruleProblems(value, MAX_ISSUES + 1)]
  const outer = decodeOuter(withoutItems(value))
  if (Result.isFailure(outer)) append(problems, problemsOf(outer.failure.issue, value, disclosure))
  const lists = Object.fromEntries(
    partNames.map((part) => [part, decodePart(value, part, previous, problems)])
  )
  return problems.length === 0 && Result.isSuccess(outer)
    ? Result.succeed({ ...outer.success, ...lists } as HostDesiredState)
    : Result.fail(problems)
}

// -------------------------------------------------------------------------------------------------- places

interface Placed {
  readonly issue: DocumentIssue
  readonly offset: number
}

const withPlaces = (
  text: string,
  problems: ReadonlyArray<Problem & { readonly offset?: number }>
): DocumentRefused => {
  const unique = new Map<string, Problem & { readonly offset?: number }>()
  for (const problem of problems) {
    const pointer = toPointer(problem.path)
    const known = unique.get(pointer)
    // A rule and the schema may find the same thing: the rule, which comes first, says it better.
    if (known === undefined) unique.set(pointer, problem)
  }
  const listed = [...unique].slice(0, MAX_ISSUES)
  const unplaced = listed.flatMap(([, { offset, path }]) => (offset === undefined ? [path] : []))
  // A text that could not be read brings its places along and is not read again.
  const reading = readJson(unplaced.length === 0 ? "" : text, { paths: unplaced })
  const offsets = listed.map(([, problem]) => {
    if (problem.offset !== undefined) return problem.offset
    const place = reading.place(problem.path)
    return problem.at === "key" ? (place.key ?? place.value) : place.value
  })
  const positions = positionsOf(text, offsets)
  const placed = listed.map(([path, { message }], index): Placed => {
    const offset = offsets[index] ?? 0
    return { offset, issue: { path, message, ...positions.get(offset) } }
  })
  placed.sort((a, b) => a.offset - b.offset)
  return new DocumentRefused({
    issues: placed.map(({ issue }) => issue),
    truncated: unique.size > MAX_ISSUES
  })
}

const refusedText = (text: string, problems: ReadonlyArray<TextProblem>): DocumentRefused =>
  withPlaces(
    text,
    problems.map((problem) => ({ ...problem, at: "value" as const }))
  )

interface Decoded {
  readonly decoded: Result.Result<HostDesiredState, DocumentRefused>
  /** There is nothing in the text that the document does not hold. */
  readonly whole: boolean
}

const decodeText = (reading: JsonText, previous: HostDesiredState | undefined): Decoded => {
  const value = decodeValue(reading.value, previous)
  // Every member of the text is there: then none was named twice, and nobody needs to look.
  if (Result.isSuccess(value) && countMembers(value.success) === reading.members)
    return { decoded: Result.succeed(value.success), whole: true }
  const twice = duplicateKeys(reading, MAX_ISSUES)
  const decoded =
    twice.length > 0
      ? Result.fail(refusedText(reading.text, twice))
      : Result.mapError(value, (problems) => withPlaces(reading.text, problems))
  return { decoded, whole: false }
}

/**
 * Reads a document, or refuses it with all its problems: those of the text, else those of the schema and the rules.
 *
 * `previous` is the document in force: an item that is the same as there is taken from it, the very object, which
 * spares most of the work when little has changed.
 */
export const decodeDocument = (
  bytes: Uint8Array,
  previous?: HostDesiredState
): Result.Result<HostDesiredState, DocumentRefused> =>
  Result.map(decodeWithText(bytes, previous), ({ document }) => document)

/** The same for whoever also keeps the text: it is made on the way. */
export const decodeWithText = (
  bytes: Uint8Array,
  previous?: HostDesiredState
): Result.Result<{ readonly document: HostDesiredState; readonly text: string }, DocumentRefused> => {
  const reading = readDocumentText(bytes, MAX_ISSUES)
  if (Result.isFailure(reading))
    return Result.fail(refusedText(reading.failure.text, reading.failure.problems))
  const { text } = reading.success
  return Result.map(decodeText(reading.success, previous).decoded, (document) => ({ document, text }))
}

export interface CheckedDocument {
  readonly decoded: Result.Result<HostDesiredState, DocumentRefused>
  /** Fields that are ignored and look like a slip for one that is optional. The document is none the worse. */
  readonly warnings: ReadonlyArray<DocumentIssue>
}

/** The most warnings of one document that are listed. */
export const MAX_WARNINGS = 100

/**
 * The same for somebody who wants to know what is odd, too.
 *
 * @param oddities what else is odd about a document that is accepted: for instance what no host makes of it
 */
export const checkDocument = (
  bytes: Uint8Array,
  oddities: (document: HostDesiredState) => ReadonlyArray<Problem> = () => []
): CheckedDocument => {
  const reading = readDocumentText(bytes, MAX_ISSUES)
  if (Result.isFailure(reading)) {
    const { problems, text } = reading.failure
    return { decoded: Result.fail(refusedText(text, problems)), warnings: [] }
  }
  const { text, value } = reading.success
  const { decoded, whole } = decodeText(reading.success, undefined)
  const ignored = whole ? [] : unknownFieldProblems(HostDesiredState.ast, value, MAX_WARNINGS)
  const other = Result.isSuccess(decoded) ? oddities(decoded.success) : []
  const odd = [...ignored, ...other].slice(0, MAX_WARNINGS)
  return { decoded, warnings: odd.length === 0 ? [] : withPlaces(text, odd).issues }
}
