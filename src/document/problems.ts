/**
 * From a schema's issues to problems that a person can act on: the place, what was found there, what is
 * allowed. Shared by `desired.json` and `config.toml`.
 */
import { type SchemaAST, SchemaIssue } from "effect"
import { allowed, allowedString, alternatives, discriminator } from "./allowed.ts"
import { nearestName } from "./nearest.ts"
import { MAX_SHOWN, quote } from "./quote.ts"

/** Keys and indices from the root to a value. */
export type Path = ReadonlyArray<string | number>

export interface Problem {
  readonly path: Path
  /** A sentence without the path: the field, what was found, what is allowed. */
  readonly message: string
  /** Whether the value or the key is to blame; a missing key is shown at the object that lacks it. */
  readonly at: "value" | "key" | "missing"
}

/** What the reader of a document may be shown of it. */
export interface Disclosure {
  /** Whether the value at the path, or what is in it, must not be shown. */
  readonly secret: (path: Path) => boolean
  /** How the message calls the field. */
  readonly name: (path: Path) => string
  /** A value of a kind of its own in a few words. */
  readonly describe?: (value: unknown) => string | undefined
  /** What an object is called, with its article. */
  readonly object: string
  /** Whether keys that are not known are ignored: then one that is near a missing key is told with it. */
  readonly ignoresUnknown?: boolean
}

const countOf = (n: number, noun: string) => `${n} ${noun}${n === 1 ? "" : "s"}`

/** A value in a few words. Scalars are shown when `show` is true, else only their type. */
const describeValue = (value: unknown, show: boolean, object: string): string => {
  if (value === null) return "null"
  if (Array.isArray(value)) return `a list of ${countOf(value.length, "item")}`
  switch (typeof value) {
    case "string":
      return show ? quote(value) : `a string of ${countOf(Array.from(value).length, "character")}`
    case "number":
    case "bigint":
      return show ? String(value) : "a number"
    case "boolean":
      return show ? String(value) : "a boolean"
    case "object":
      return value instanceof Date ? "a date" : object
    default:
      return "nothing"
  }
}

/** `layers[0]` for an item of a list, else the last key. */
export const fieldName = (path: Path): string => {
  const last = path.at(-1)
  if (last === undefined) return "the document"
  if (typeof last === "string") return last.length > MAX_SHOWN ? quote(last) : last
  return `${fieldName(path.slice(0, -1))}[${last}]`
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const child = (value: unknown, key: PropertyKey): unknown =>
  typeof value === "object" && value !== null ? (value as Record<PropertyKey, unknown>)[key] : undefined

const isContainer = (ast: SchemaAST.AST) => ast._tag === "Objects" || ast._tag === "Arrays"

const typeOfMember = (ast: SchemaAST.AST | undefined, key: string): SchemaAST.AST | undefined =>
  ast?._tag === "Objects"
    ? (ast.propertySignatures.find(({ name }) => name === key)?.type ?? ast.indexSignatures[0]?.type)
    : undefined

/** The keys that an object of this type may have. */
export const keysOf = (ast: SchemaAST.AST): ReadonlyArray<string> =>
  ast._tag === "Objects" ? ast.propertySignatures.map(({ name }) => String(name)) : []

/** Which of an object's keys that are not known may have been meant for a key that it lacks. */
const slipFor = (missing: string, object: unknown, known: ReadonlyArray<string>): string | undefined => {
  if (!isObject(object)) return undefined
  const lacking = known.filter((key) => !(key in object))
  return Object.keys(object).find((key) => !known.includes(key) && nearestName(key, lacking) === missing)
}

/**
 * Every problem in a schema's issue, in the order in which the schema found them. `input` is what was decoded:
 * issues keep no values, so that what is shown is decided here.
 */
export const problemsOf = (
  issue: SchemaIssue.Issue,
  input: unknown,
  disclosure: Disclosure,
  base: Path = []
): ReadonlyArray<Problem> => {
  const allow = (ast: SchemaAST.AST) => allowed(ast, disclosure.object)
  const wrong = (path: Path, value: unknown, must: string, show = true): Problem => {
    const found =
      disclosure.describe?.(value) ??
      describeValue(value, show && !disclosure.secret(path), disclosure.object)
    return { path, at: "value", message: `${disclosure.name(path)} is ${found}, but must be ${must}` }
  }
  const missing = (
    path: Path,
    must: string | undefined,
    beside: unknown,
    known: ReadonlyArray<string>
  ): Problem => {
    const slip = disclosure.ignoresUnknown === true ? slipFor(String(path.at(-1)), beside, known) : undefined
    const hint = slip === undefined ? "" : `; ${quote(slip)} is not a known key: was it meant?`
    return {
      path,
      at: "missing",
      message: `${disclosure.name(path)} is missing${must === undefined ? "" : `; it must be ${must}`}${hint}`
    }
  }

  const noMember = (ast: SchemaAST.Union, path: Path, value: unknown): Problem => {
    const tag = discriminator(ast)
    // A scalar where an object belongs may be anything, a command line with a password too.
    if (tag === undefined || !isObject(value))
      return wrong(path, value, allow(ast), !ast.types.some(isContainer))
    const kind = [...path, tag.key]
    const must = alternatives(tag.values)
    return tag.key in value
      ? wrong(kind, value[tag.key], must)
      : missing(kind, must, value, ast.types.flatMap(keysOf))
  }

  const failedCheck = (
    { filter, issue: inner }: SchemaIssue.Filter,
    ast: SchemaAST.AST | undefined,
    path: Path,
    value: unknown
  ): ReadonlyArray<Problem> => {
    if (inner._tag === "Composite" || inner._tag === "Pointer") return visit(inner, ast, path, value)
    const message = inner._tag === "InvalidValue" ? inner.annotations?.message : undefined
    if (typeof message === "string")
      return [{ path, at: "value", message: `${disclosure.name(path)} ${message}` }]
    if (ast?._tag === "String") return [wrong(path, value, allowedString(ast, filter))]
    return [wrong(path, value, ast === undefined ? String(filter.annotations?.expected) : allow(ast))]
  }

  const unknownKey = ({ ast }: SchemaIssue.UnexpectedKey, path: Path): string => {
    const known = keysOf(ast)
    const nearest = nearestName(String(path.at(-1)), known)
    const remedy =
      nearest === undefined ? `known here: ${known.join(", ")}` : `did you mean ${quote(nearest)}?`
    return `${disclosure.name(path)} is not a known key; ${remedy}`
  }

  const visit = (
    issue: SchemaIssue.Issue,
    ast: SchemaAST.AST | undefined,
    path: Path,
    value: unknown
  ): ReadonlyArray<Problem> => {
    switch (issue._tag) {
      case "Composite":
        return issue.issues.flatMap((inner) => visit(inner, issue.ast, path, value))
      case "AnyOf":
        return issue.issues.length === 0
          ? [noMember(issue.ast, path, value)]
          : issue.issues.flatMap((inner) => visit(inner, issue.ast, path, value))
      case "Pointer": {
        const keys = issue.path.map((key) => (typeof key === "symbol" ? String(key) : key))
        const below = [...path, ...keys]
        const type = typeOfMember(ast, String(keys.at(-1)))
        return issue.issue._tag === "MissingKey"
          ? [
              missing(
                below,
                type === undefined ? undefined : allow(type),
                keys.slice(0, -1).reduce(child, value),
                ast === undefined ? [] : keysOf(ast)
              )
            ]
          : visit(issue.issue, type, below, keys.reduce(child, value))
      }
      case "Filter":
        return failedCheck(issue, ast, path, value)
      case "InvalidType":
        return [wrong(path, value, allow(issue.ast), !isContainer(issue.ast))]
      case "UnexpectedKey":
        return [{ path, at: "key", message: unknownKey(issue, path) }]
      case "InvalidValue": {
        const { message } = issue.annotations ?? {}
        return [{ path, at: "value", message: String(message ?? `${disclosure.name(path)} is not allowed`) }]
      }
      case "Encoding":
        return visit(issue.issue, ast, path, value)
      default: {
        const text = SchemaIssue.makeFormatterDefault()(issue)
        return [{ path, at: "value", message: `${disclosure.name(path)} is refused: ${text}` }]
      }
    }
  }

  return visit(issue, undefined, base, input)
}
