/** What a schema allows, in the words of a message. */
import type { SchemaAST } from "effect"

/** `a`, `a or b`, `a, b or c`. */
export const alternatives = (items: ReadonlyArray<string>): string =>
  items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} or ${items.at(-1)}`

type Check = SchemaAST.Check<unknown>

const flatChecks = (ast: SchemaAST.AST): ReadonlyArray<SchemaAST.Filter<unknown>> => {
  const flatten = (check: Check): ReadonlyArray<SchemaAST.Filter<unknown>> =>
    check._tag === "Filter" ? [check] : check.checks.flatMap(flatten)
  return (ast.checks ?? []).flatMap((check) => flatten(check as Check))
}

const representation = (
  filter: SchemaAST.Filter<unknown>
): { readonly id: string; readonly payload: Readonly<Record<string, number>> } | undefined => {
  const found = filter.annotations?.representation as
    | { readonly id: string; readonly payload: Readonly<Record<string, number>> }
    | undefined
  return found === undefined ? undefined : { ...found, id: found.id.slice(found.id.lastIndexOf("/") + 1) }
}

/** `1 to 8`, `at least 1`, `at most 8`; nothing for a number or list without bounds. */
const boundsOf = (ast: SchemaAST.AST): string | undefined => {
  let minimum: number | undefined
  let maximum: number | undefined
  for (const filter of flatChecks(ast)) {
    const payload = representation(filter)?.payload
    minimum = payload?.minimum ?? payload?.minLength ?? minimum
    maximum = payload?.maximum ?? payload?.maxLength ?? maximum
  }
  if (minimum !== undefined && maximum !== undefined) return `${minimum} to ${maximum}`
  if (minimum !== undefined) return `at least ${minimum}`
  return maximum === undefined ? undefined : `at most ${maximum}`
}

const allowedNumber = (ast: SchemaAST.AST): string => {
  const isInteger = flatChecks(ast).some((filter) => representation(filter)?.id === "isInt")
  const noun = isInteger ? "an integer" : "a number"
  const bounds = boundsOf(ast)
  if (bounds === undefined) return noun
  return bounds.startsWith("at") ? `${noun} of ${bounds}` : `${noun} from ${bounds}`
}

const isQualifier = (text: string) => text.startsWith("at ")

/** The same for a string; with `failing`, only what that check asks. */
export const allowedString = (ast: SchemaAST.AST, failing?: SchemaAST.Filter<unknown>): string => {
  const checks = failing === undefined ? flatChecks(ast) : [failing]
  const texts = checks.flatMap(({ annotations }) => annotations?.expected ?? [])
  const noun = texts.filter((text) => !isQualifier(text)).at(-1)
  const qualifiers = texts.filter(isQualifier)
  return noun ?? (qualifiers.length === 0 ? "a string" : `a string of ${qualifiers.join(" and ")}`)
}

const allowedList = (ast: SchemaAST.AST): string => {
  const bounds = boundsOf(ast)
  return bounds === undefined ? "a list" : `a list of ${bounds} items`
}

/** The key that tells the members of a union of objects apart, and the values that it may have. */
export const discriminator = (
  ast: SchemaAST.Union
): { readonly key: string; readonly values: ReadonlyArray<string> } | undefined => {
  const members = ast.types.filter((type) => type._tag === "Objects")
  const literalsOf = (member: SchemaAST.Objects) =>
    member.propertySignatures.flatMap(({ name, type }) =>
      type._tag === "Literal" && typeof name === "string"
        ? [{ name, value: JSON.stringify(type.literal) }]
        : []
    )
  const key = members[0] === undefined ? undefined : literalsOf(members[0])[0]?.name
  if (key === undefined) return undefined
  const values = members.flatMap((member) =>
    literalsOf(member).flatMap(({ name, value }) => (name === key ? [value] : []))
  )
  return values.length === members.length ? { key, values } : undefined
}

/** What a schema allows, in a few words that follow "must be". `object` is what an object is called. */
export const allowed = (ast: SchemaAST.AST, object: string): string => {
  switch (ast._tag) {
    case "String":
      return allowedString(ast)
    case "Number":
      return allowedNumber(ast)
    case "Boolean":
      return "true or false"
    case "Null":
      return "null"
    case "Literal":
      return JSON.stringify(ast.literal)
    case "Arrays":
      return allowedList(ast)
    case "Objects":
      return object
    case "Union": {
      const tag = discriminator(ast)
      if (tag !== undefined && ast.types.length === tag.values.length)
        return `${object} whose ${tag.key} is ${alternatives(tag.values)}`
      return alternatives(ast.types.map((type) => allowed(type, object)))
    }
    default:
      return "something else"
  }
}
