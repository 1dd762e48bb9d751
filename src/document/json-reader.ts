/**
 * Where things stand in a JSON text. `JSON.parse` gives values without places and keeps the last of two equal
 * keys, so this reader walks the text again, and only when there is something to complain of. It keeps its own
 * stack: a text may nest as deep as it likes.
 */
import type { Path } from "./problems.ts"

/** Offsets into the text, in UTF-16 code units. */
export interface Place {
  readonly value: number
  /** Where the key stands, for the member of an object. */
  readonly key?: number
}

/** 1-based; a column counts code points. */
export interface Position {
  readonly line: number
  readonly column: number
}

export interface JsonReading {
  /** The first thing that is not JSON; what follows it was not read. */
  readonly syntaxError?: { readonly offset: number; readonly message: string }
  /** Keys that their object names a second time, and where. */
  readonly duplicates: ReadonlyArray<{ readonly path: Path; readonly offset: number }>
  /** Where the scalars stand that must not be shown, from and to, in order. */
  readonly secrets: ReadonlyArray<readonly [start: number, end: number]>
  /** Where the names of secret things stand. */
  readonly secretNames: ReadonlyArray<readonly [start: number, end: number]>
  /** The place of a path, or of its nearest ancestor that is there. */
  readonly place: (path: Path) => Place
}

/** A node of the tree of paths that somebody asked for. */
interface Wanted {
  readonly children: Map<string, Wanted>
  place?: Place
}

interface Frame {
  readonly kind: "object" | "array"
  readonly names: Set<string> | undefined
  readonly wanted: Wanted | undefined
  readonly secret: boolean
  index: number
  name: string
  keyOffset: number
}

const wantedTree = (paths: ReadonlyArray<Path>): Wanted => {
  const root: Wanted = { children: new Map() }
  for (const path of paths) {
    let node = root
    for (const key of path) {
      const name = String(key)
      const next: Wanted = node.children.get(name) ?? { children: new Map() }
      node.children.set(name, next)
      node = next
    }
  }
  return root
}

const numberPattern = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
// Most strings hold no escape; the others are walked.
const simpleString = /"[^"\\\u0000-\u001f]*"/y

/** What a reading collects; nothing that is not asked for. */
export interface JsonWishes {
  /** Paths whose places are wanted. */
  readonly paths?: ReadonlyArray<Path>
  /** How many keys that are named twice are wanted at most. */
  readonly duplicates?: number
  /** The keys whose values may be shown: everything below another key is secret. */
  readonly shownKeys?: ReadonlySet<string>
  /** Of those, the keys whose value is secret when it is a scalar. */
  readonly secretScalars?: ReadonlySet<string>
}

/** Reads a text to its end or to its first error. */
export const readJson = (text: string, wishes: JsonWishes): JsonReading => {
  const { duplicates: limit = 0, paths = [], secretScalars, shownKeys } = wishes
  const root = wantedTree(paths)
  const frames: Array<Frame> = []
  const duplicates: Array<{ readonly path: Path; readonly offset: number }> = []
  const secrets: Array<readonly [number, number]> = []
  const secretNames: Array<readonly [number, number]> = []
  let at = 0
  /** Where the last comma stands. */
  let comma = 0

  const here = (): Path => frames.map((frame) => (frame.kind === "array" ? frame.index : frame.name))

  const done = (syntaxError?: JsonReading["syntaxError"]): JsonReading => ({
    ...(syntaxError === undefined ? {} : { syntaxError }),
    duplicates,
    secrets,
    secretNames,
    place: (path) => {
      let node = root
      let place = root.place ?? { value: 0 }
      for (const key of path) {
        const next = node.children.get(String(key))
        if (next?.place === undefined) return { value: place.value }
        node = next
        place = next.place
      }
      return place
    }
  })

  const skipSpace = () => {
    for (;;) {
      const code = text.charCodeAt(at)
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return
      at++
    }
  }

  const fail = (message: string): JsonReading =>
    done(
      at >= text.length
        ? { offset: text.length, message: `the text ends where ${message} belongs` }
        : { offset: at, message: `${message} belongs here${habit(text, at)}` }
    )

  const oneCommaTooMany = (what: string): JsonReading =>
    done({ offset: comma, message: `this ',' is one too many: no ${what} follows it` })

  /** The end of the string that starts at `at`, or nothing when it is none. */
  const stringEnd = (): number | undefined => {
    simpleString.lastIndex = at
    if (simpleString.test(text)) return simpleString.lastIndex
    const stop = stringStop(text, at)
    return text.charCodeAt(stop) === 0x22 ? stop + 1 : undefined
  }

  let expecting: "value" | "value-or-end" | "key" | "key-or-end" | "comma" = "value"
  for (;;) {
    skipSpace()
    const frame = frames.at(-1)
    const code = text.charCodeAt(at)

    if (expecting === "comma") {
      if (frame === undefined) return at >= text.length ? done() : fail("the end of the document")
      if (code === 0x2c) {
        comma = at++
        expecting = frame.kind === "object" ? "key" : "value"
        frame.index++
        continue
      }
      if (code === (frame.kind === "object" ? 0x7d : 0x5d)) {
        at++
        frames.pop()
        continue
      }
      return fail(frame.kind === "object" ? "',' or '}'" : "',' or ']'")
    }

    if (expecting === "key" || expecting === "key-or-end") {
      if (code === 0x7d && expecting === "key-or-end") {
        at++
        frames.pop()
        expecting = "comma"
        continue
      }
      if (code === 0x7d) return oneCommaTooMany("member")
      const end = code === 0x22 ? stringEnd() : undefined
      if (frame === undefined || end === undefined)
        return fail(expecting === "key" ? "a key in double quotes" : "a key in double quotes or '}'")
      frame.name = JSON.parse(text.slice(at, end)) as string
      frame.keyOffset = at
      if (frame.names?.has(frame.name) === true && duplicates.length < limit)
        duplicates.push({ path: here(), offset: at })
      frame.names?.add(frame.name)
      if (frame.secret) secretNames.push([at, end])
      at = end
      skipSpace()
      if (text.charCodeAt(at) !== 0x3a) return fail("':'")
      at++
      expecting = "value"
      continue
    }

    if (code === 0x5d && expecting === "value-or-end") {
      at++
      frames.pop()
      expecting = "comma"
      continue
    }

    if (code === 0x5d && frame?.kind === "array") return oneCommaTooMany("value")

    const wanted: Wanted | undefined =
      frame === undefined
        ? root
        : frame.wanted?.children.get(frame.kind === "array" ? String(frame.index) : frame.name)
    if (wanted !== undefined)
      wanted.place = frame?.kind === "object" ? { value: at, key: frame.keyOffset } : { value: at }

    const isMember = frame?.kind === "object"
    const isBelowSecret = frame?.secret === true || (isMember && shownKeys?.has(frame.name) === false)
    const isSecret = isBelowSecret || (isMember && secretScalars?.has(frame.name) === true)
    if (code === 0x7b || code === 0x5b) {
      const kind = code === 0x7b ? "object" : "array"
      frames.push({
        kind,
        names: kind === "object" && limit > 0 ? new Set() : undefined,
        wanted: wanted !== undefined && wanted.children.size > 0 ? wanted : undefined,
        secret: isBelowSecret,
        index: 0,
        name: "",
        keyOffset: at
      })
      at++
      expecting = kind === "object" ? "key-or-end" : "value-or-end"
      continue
    }
    const start = at
    if (code === 0x22) {
      const end = stringEnd()
      if (end === undefined) {
        if (isSecret) secrets.push([at, text.length])
        at = stringStop(text, at)
        return done({
          offset: at,
          message: stringProblem(text.charAt(at))
        })
      }
      at = end
    } else {
      numberPattern.lastIndex = at
      if (text.startsWith("true", at) || text.startsWith("null", at)) at += 4
      else if (text.startsWith("false", at)) at += 5
      else if (numberPattern.test(text)) at = numberPattern.lastIndex
      else return fail(expecting === "value-or-end" ? "a value or ']'" : "a value")
    }
    if (isSecret) secrets.push([start, at])
    expecting = "comma"
  }
}

/** What somebody may have been used to who wrote what stands at `at`. */
const habit = (text: string, at: number): string => {
  if (/^(?:#|\/[/*])/u.test(text.slice(at, at + 2))) return "; JSON has no comments"
  return text[at] === "'" ? "; JSON has double quotes alone" : ""
}

const stringProblem = (stop: string): string => {
  if (stop === "") return "the text ends inside a string"
  if (stop === "\n" || stop === "\r") return "a string is not closed on its line"
  return stop === "\\"
    ? "this is no escape that a string may hold"
    : "this character cannot stand in a string as it is: escape it"
}

// Walked by hand: an alternation under `*` overflows the engine's stack on a long string.
/** Where the string that starts at `start` stops: at its closing quote, or at the first character that it cannot hold. */
function stringStop(text: string, start: number): number {
  let at = start + 1
  for (;;) {
    const code = text.charCodeAt(at)
    if (Number.isNaN(code)) return text.length
    if (code === 0x22 || code < 0x20) return at
    if (code !== 0x5c) at++
    else if (/^["\\/bfnrt]/u.test(text.charAt(at + 1))) at += 2
    else if (/^u[0-9a-fA-F]{4}$/u.test(text.slice(at + 1, at + 6))) at += 6
    else return at
  }
}

/** The line and column of each offset, in one pass over the text: a line may be the whole document. */
export const positionsOf = (text: string, offsets: Iterable<number>): ReadonlyMap<number, Position> => {
  const positions = new Map<number, Position>()
  let at = 0
  let line = 1
  let column = 1
  for (const offset of [...new Set(offsets)].sort((a, b) => a - b)) {
    for (; at < offset; at++) {
      const code = text.charCodeAt(at)
      if (code === 0x0a) {
        line++
        column = 1
        // The second half of a surrogate pair is no character of its own.
      } else if (code < 0xdc00 || code > 0xdfff) column++
    }
    positions.set(offset, { line, column })
  }
  return positions
}
