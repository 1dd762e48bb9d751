import type { SchemaAST } from "effect"

/** The names of all the fields of a schema and of what it holds. */
export const namesIn = (ast: SchemaAST.AST): ReadonlyArray<string> => {
  switch (ast._tag) {
    case "Union":
      return ast.types.flatMap(namesIn)
    case "Arrays":
      return [...ast.elements, ...ast.rest].flatMap(namesIn)
    case "Objects":
      return ast.propertySignatures.flatMap(({ name, type }) => [String(name), ...namesIn(type)])
    default:
      return []
  }
}
