/** A TOML text as values, and where they stand in it. */
import { Result } from "effect"
import { parse, TomlError } from "smol-toml"
import { type AST, parseTOML } from "toml-eslint-parser"
import type { Path } from "../document/problems.ts"

/** A float, kept apart from an integer: no key of ours takes one. */
export class TomlFloat {
  readonly value: number
  constructor(value: number) {
    this.value = value
  }
}

export interface TomlProblem {
  readonly message: string
  /** 1-based. */
  readonly line: number
  readonly column: number
}

/** 1-based; a column counts code points. */
export interface TomlPlace {
  readonly line: number
  readonly column: number
}

/** Integers as numbers, floats set apart, strings without the white space around them. */
const plain = (value: unknown): unknown => {
  if (typeof value === "bigint") return Number(value)
  if (typeof value === "number") return new TomlFloat(value)
  if (typeof value === "string") return value.trim()
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== "object" || value === null || value instanceof Date) return value
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, plain(member)]))
}

/** Reads a TOML text, or says where it stops being one. */
export const readToml = (text: string): Result.Result<Readonly<Record<string, unknown>>, TomlProblem> =>
  Result.try({
    try: () =>
      plain(parse(text, { integersAsBigInt: true, maxDepth: 100 })) as Readonly<Record<string, unknown>>,
    catch: (error) =>
      error instanceof TomlError
        ? {
            // Only the first line is the reason; the others show the text.
            message: (error.message.split("\n")[0] ?? "").replace("Invalid TOML document: ", ""),
            line: error.line,
            column: error.column
          }
        : { message: "it cannot be parsed", line: 1, column: 1 }
  })

interface Entry {
  readonly path: Path
  readonly key: TomlPlace
  readonly value: TomlPlace
}

const startOf = (node: AST.TOMLNode, lines: ReadonlyArray<string>): TomlPlace => {
  const { column, line } = node.loc.start
  return { line, column: Array.from((lines[line - 1] ?? "").slice(0, column)).length + 1 }
}

/** Every key and item of the text, in its order. */
const entriesOf = (text: string): ReadonlyArray<Entry> => {
  const lines = text.split("\n")
  const entries: Array<Entry> = []
  const start = (node: AST.TOMLNode) => startOf(node, lines)
  const keyPath = (key: AST.TOMLKey): Path =>
    key.keys.map((part) => (part.type === "TOMLBare" ? part.name : part.value))

  const addContent = (node: AST.TOMLContentNode, path: Path): void => {
    if (node.type === "TOMLArray")
      node.elements.forEach((element, index) => {
        const place = start(element)
        entries.push({ path: [...path, index], key: place, value: place })
        addContent(element, [...path, index])
      })
    else if (node.type === "TOMLInlineTable") for (const member of node.body) addKeyValue(member, path)
  }
  const addKeyValue = (node: AST.TOMLKeyValue, base: Path): void => {
    const path = [...base, ...keyPath(node.key)]
    entries.push({ path, key: start(node.key), value: start(node.value) })
    addContent(node.value, path)
  }
  for (const node of parseTOML(text).body[0].body) {
    if (node.type === "TOMLKeyValue") {
      addKeyValue(node, [])
      continue
    }
    const place = start(node.key)
    entries.push({ path: node.resolvedKey, key: place, value: place })
    for (const member of node.body) addKeyValue(member, node.resolvedKey)
  }
  return entries
}

/** Whether a path leads to another, or is the same. */
export const isPrefix = (shorter: Path, longer: Path) =>
  shorter.length <= longer.length && shorter.every((part, index) => part === longer[index])

/**
 * Where the key or the value of a path stands; for a path that is not in the text, the header of the table or the
 * key that it belongs under, or else the start.
 */
export const tomlPlaces = (text: string): ((path: Path, at: "key" | "value" | "missing") => TomlPlace) => {
  const entries = Result.getOrElse(
    // The two parsers agree on what TOML is; where they would not, a place is not worth a crash.
    Result.try(() => entriesOf(text)),
    (): ReadonlyArray<Entry> => []
  )
  return (path, at) => {
    const exact = entries.find((entry) => entry.path.length === path.length && isPrefix(entry.path, path))
    if (exact !== undefined && at !== "missing") return exact[at]
    // A table may have no header of its own, as `proxy` has none above `[proxy.http]`.
    const below = at === "missing" ? undefined : entries.find((entry) => isPrefix(path, entry.path))
    const above = entries
      .filter((entry) => entry.path.length < path.length && isPrefix(entry.path, path))
      .reduce<Entry | undefined>(
        (best, entry) => (best === undefined || entry.path.length > best.path.length ? entry : best),
        undefined
      )
    return (below ?? above)?.key ?? { line: 1, column: 1 }
  }
}
