/**
 * From the bytes of a file to a JSON value. What JSON leaves open is settled here: UTF-8, with or without a byte
 * order mark; no key twice in an object; no lone surrogate; bounded in size and depth.
 */
import { Result } from "effect"
import { readJson } from "./json-reader.ts"
import type { Path } from "./problems.ts"
import { quote } from "./quote.ts"

/** The largest document that is read, in bytes: 64 MiB. */
export const MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
/** The deepest that a document may nest. The schema's own parts nest 8 deep; the rest is for unknown fields. */
export const MAX_DOCUMENT_DEPTH = 512

/** Why a file is no document, and where; `path` is the value that it happened at. */
export interface TextProblem {
  readonly path: Path
  readonly message: string
  readonly offset?: number
}

export interface JsonText {
  readonly text: string
  readonly value: unknown
  /** How many members the objects of the text have in all. */
  readonly members: number
}

/** Both, so that a place can still be found in a text that was refused. */
export interface TextRefusal {
  readonly text: string
  readonly problems: ReadonlyArray<TextProblem>
}

const decoder = new TextDecoder("utf-8", { fatal: true })

/** The text before the first byte that is part of no character. */
const wellFormedPrefix = (bytes: Uint8Array): string => {
  // A fatal decoder does not say where it stopped, so the place is found by halving. In the middle of a stream it
  // takes half a character for the start of one, and leaves it out.
  const prefix = (end: number) =>
    Result.try(() =>
      new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(0, end), { stream: true })
    )
  let good = 0
  let bad = bytes.length + 1
  while (bad - good > 1) {
    const middle = (good + bad) >> 1
    if (Result.isSuccess(prefix(middle))) good = middle
    else bad = middle
  }
  return Result.getOrElse(prefix(good), () => "")
}

const startsWithMark = (bytes: Uint8Array) => bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf

const invalidUtf8 = (bytes: Uint8Array): TextRefusal => {
  const text = wellFormedPrefix(bytes)
  const at = new TextEncoder().encode(text).length + (startsWithMark(bytes) ? 3 : 0)
  const utf16 = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff)
  const message = utf16
    ? "the document is UTF-16, but must be UTF-8"
    : `the document is not UTF-8: byte ${at} is part of no character`
  return { text, problems: [{ path: [], message, offset: text.length }] }
}

interface Outline {
  /** Members of objects, counted by their colons. */
  readonly members: number
  /** The byte at which the text nests too deep. */
  readonly tooDeepAt: number | undefined
  /** Whether some escape may be half of a surrogate pair. */
  readonly surrogateEscapes: boolean
}

/** What `JSON.parse` does not tell of a text. Of a text that is not JSON it tells nothing to rely on, but ends. */
const outline = (bytes: Uint8Array): Outline => {
  let members = 0
  let depth = 0
  let surrogateEscapes = false
  const length = bytes.length
  for (let at = 0; at < length; at++) {
    const byte = bytes[at]
    if (byte === 0x22) {
      for (at++; at < length && bytes[at] !== 0x22; at++) {
        if (bytes[at] !== 0x5c) continue
        at++
        if (bytes[at] === 0x75 && (bytes[at + 1] === 0x64 || bytes[at + 1] === 0x44)) surrogateEscapes = true
      }
    } else if (byte === 0x3a) members++
    else if (byte === 0x7b || byte === 0x5b) {
      depth++
      if (depth > MAX_DOCUMENT_DEPTH) return { members, tooDeepAt: at, surrogateEscapes }
    } else if (byte === 0x7d || byte === 0x5d) depth--
  }
  return { members, tooDeepAt: undefined, surrogateEscapes }
}

const isContainer = (value: unknown): value is object => typeof value === "object" && value !== null

/** How many members the objects in a value have in all. Recursion is bounded by the depth. */
export const countMembers = (value: unknown): number => {
  let members = 0
  if (Array.isArray(value)) {
    for (const item of value) if (isContainer(item)) members += countMembers(item)
  } else if (isContainer(value)) {
    for (const key in value) {
      members++
      const member = (value as Record<string, unknown>)[key]
      if (isContainer(member)) members += countMembers(member)
    }
  }
  return members
}

/** The strings and keys that are not well-formed Unicode, at most `limit`. Recursion is bounded by the depth. */
const loneSurrogates = (value: unknown, limit: number): ReadonlyArray<Path> => {
  const found: Array<Path> = []
  const visit = (value: unknown, path: Path): void => {
    if (found.length >= limit) return
    if (typeof value === "string" && !value.isWellFormed()) found.push(path)
    else if (Array.isArray(value))
      value.forEach((item, index) => {
        visit(item, [...path, index])
      })
    else if (isContainer(value))
      for (const [key, member] of Object.entries(value)) {
        if (found.length >= limit) return
        if (!key.isWellFormed()) found.push([...path, key])
        visit(member, [...path, key])
      }
  }
  visit(value, [])
  return found
}

/** The first `limit` keys that an object of the text names a second time: of two, `JSON.parse` keeps the last. */
export const duplicateKeys = (
  { members, text, value }: JsonText,
  limit: number
): ReadonlyArray<TextProblem> =>
  members === countMembers(value)
    ? []
    : readJson(text, { duplicates: limit }).duplicates.map(({ offset, path }) => ({
        path,
        offset,
        message: `key ${quote(String(path.at(-1)))} is named twice in one object`
      }))

/**
 * Reads a file's bytes as JSON, or says everything that keeps it from being read. Only keys that are named twice are
 * left to `duplicateKeys`.
 */
export const readDocumentText = (bytes: Uint8Array, limit: number): Result.Result<JsonText, TextRefusal> => {
  const refuse = (text: string, ...problems: ReadonlyArray<TextProblem>) => Result.fail({ text, problems })

  if (bytes.length > MAX_DOCUMENT_BYTES)
    return refuse("", {
      path: [],
      message: `the document has ${bytes.length} bytes, but at most ${MAX_DOCUMENT_BYTES} are read`
    })
  const decoded = Result.try(() => decoder.decode(bytes))
  if (Result.isFailure(decoded)) return Result.fail(invalidUtf8(bytes))
  const text = decoded.success

  const { members, surrogateEscapes, tooDeepAt } = outline(bytes)
  if (tooDeepAt !== undefined)
    return refuse(text, {
      path: [],
      message: `the document nests deeper than the ${MAX_DOCUMENT_DEPTH} levels that are read`,
      offset: new TextDecoder().decode(bytes.subarray(0, tooDeepAt)).length
    })
  const parsed = Result.try(() => JSON.parse(text) as unknown)
  if (Result.isFailure(parsed)) {
    const { syntaxError } = readJson(text, {})
    // The engine's own message quotes the text, which may hold secrets.
    return refuse(text, {
      path: [],
      message: `the document is not JSON: ${syntaxError?.message ?? "it cannot be parsed"}`,
      offset: syntaxError?.offset ?? 0
    })
  }
  const read = { text, value: parsed.success, members }
  const lone = surrogateEscapes ? loneSurrogates(read.value, limit) : []
  if (lone.length === 0) return Result.succeed(read)
  const message = "this string or its key holds half of a surrogate pair, which is no character"
  return refuse(text, ...duplicateKeys(read, limit), ...lone.map((path) => ({ path, message })))
}
