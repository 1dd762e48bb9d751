/**
 * Fields of a document that nobody reads, where they look like a slip for one that is optional. Unknown fields are
 * ignored, so that a newer writer may name them: a slip costs what it was meant to say, and nothing else tells of it.
 */
import { SchemaAST } from "effect"
import { discriminator } from "./allowed.ts"
import { nearestName } from "./nearest.ts"
import { fieldName, keysOf, type Path, type Problem } from "./problems.ts"
import { quote } from "./quote.ts"

type Fields = Readonly<Record<string, unknown>>

const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** The member of a union that a value is meant to be. */
const memberFor = (ast: SchemaAST.Union, value: Fields): SchemaAST.Objects | undefined => {
  const members = ast.types.flatMap((type) => (type._tag === "Union" ? type.types : [type]))
  const objects = members.filter((type) => type._tag === "Objects")
  const tag = discriminator(ast)
  if (tag === undefined) return objects.length === 1 ? objects[0] : undefined
  return objects.find((member) =>
    member.propertySignatures.some(
      ({ name, type }) =>
        name === tag.key && type._tag === "Literal" && Object.is(type.literal, value[tag.key])
    )
  )
}

/** The first `limit` fields of a value that its schema does not know, and that are near one that it lacks. */
export const unknownFieldProblems = (
  ast: SchemaAST.AST,
  value: unknown,
  limit: number
): ReadonlyArray<Problem> => {
  const problems: Array<Problem> = []

  const visit = (ast: SchemaAST.AST, value: unknown, path: Path): void => {
    if (problems.length >= limit) return
    if (ast._tag === "Union") {
      const member = isObject(value) ? memberFor(ast, value) : undefined
      const list = Array.isArray(value) ? ast.types.find((type) => type._tag === "Arrays") : undefined
      const meant = member ?? list
      if (meant !== undefined) visit(meant, value, path)
    } else if (ast._tag === "Arrays" && Array.isArray(value)) {
      const [item] = ast.rest
      if (item === undefined) return
      value.forEach((one, index) => {
        visit(item, one, [...path, index])
      })
    } else if (ast._tag === "Objects" && isObject(value) && ast.propertySignatures.length > 0) {
      object(ast, value, path)
    }
  }

  const object = (ast: SchemaAST.Objects, value: Fields, path: Path): void => {
    const known = new Set(keysOf(ast))
    const lacking = ast.propertySignatures.filter(({ name }) => !Object.hasOwn(value, name))
    const names = lacking.map(({ name }) => String(name))
    const optional = new Set(
      lacking.filter(({ type }) => SchemaAST.isOptional(type)).map(({ name }) => String(name))
    )
    for (const key of optional.size === 0 ? [] : Object.keys(value)) {
      if (known.has(key) || problems.length >= limit) continue
      const meant = nearestName(key, names)
      // A field that is missing is a problem of its own, which tells of the slip.
      if (meant === undefined || !optional.has(meant)) continue
      const message = `${fieldName([...path, key])} is not a known key, and is ignored; did you mean ${quote(meant)}?`
      problems.push({ path: [...path, key], at: "key", message })
    }
    for (const { name, type } of ast.propertySignatures)
      if (Object.hasOwn(value, name)) visit(type, value[String(name)], [...path, String(name)])
  }

  visit(ast, value, [])
  return problems
}
