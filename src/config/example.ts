/** `config.toml` with every section and key, written from the schema's own descriptions and examples. */
import type { JsonSchemaObject } from "../document/json-schema.ts"
import { configJsonSchema } from "./json-schema.ts"

const WIDTH = 100

const comment = (text: string): string => {
  const lines: Array<string> = []
  let line = "#"
  for (const word of text.split(" ")) {
    if (line.length + 1 + word.length > WIDTH) {
      lines.push(line)
      line = "#"
    }
    line += ` ${word}`
  }
  return [...lines, line].join("\n")
}

/** ASCII strings, integers and lists of them are spelled in TOML as they are in JSON, but for the spaces. */
const literal = (value: unknown): string =>
  Array.isArray(value) ? `[${value.map(literal).join(", ")}]` : JSON.stringify(value)

const propertiesOf = (schema: JsonSchemaObject): ReadonlyArray<readonly [string, JsonSchemaObject]> =>
  Object.entries((schema.properties ?? {}) as Readonly<Record<string, JsonSchemaObject>>)

const isTable = ([, schema]: readonly [string, JsonSchemaObject]) => schema.type === "object"

/** A table: its header, its keys, then the tables in it. */
const table = (path: ReadonlyArray<string>, schema: JsonSchemaObject): ReadonlyArray<string> => {
  const keys = propertiesOf(schema).filter((property) => !isTable(property))
  const tables = propertiesOf(schema).filter(isTable)
  const lines = keys.map(([key, { description, examples }]) => {
    const [value] = examples as ReadonlyArray<unknown>
    return `${comment(String(description))}\n${key} = ${literal(value)}`
  })
  // A table that holds only tables needs no header of its own.
  const header = path.length === 0 || keys.length === 0 ? [] : [`[${path.join(".")}]`]
  const about = path.length === 0 ? [] : [comment(String(schema.description))]
  const block = [...about, ...header, ...lines].join("\n")
  return [...(block === "" ? [] : [block]), ...tables.flatMap(([key, inner]) => table([...path, key], inner))]
}

/** The example file. It is a valid configuration. */
export const exampleConfig = (): string => {
  const { HostConfig } = configJsonSchema().$defs as Readonly<Record<string, JsonSchemaObject>>
  const about = comment(
    "The configuration of one nibrunner host, with every section and key that there is. No key of a present section has a default, and a key that is not known is refused. Sections whose comment says what happens without them may be left out."
  )
  return `${[about, ...table([], HostConfig ?? {})].join("\n\n")}\n`
}
