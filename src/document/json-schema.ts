/** JSON Schemas (draft 2020-12) of our files, for editors and for writers of documents. */
import { JsonSchema, Schema } from "effect"
import { DesiredInstance, HostDesiredState } from "./schema.ts"

export type JsonSchemaObject = Readonly<Record<string, unknown>>

const isObject = (value: unknown): value is JsonSchemaObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/**
 * Effect writes what a key is annotated with into an `allOf` of its own; an editor shows only a description that
 * stands beside the type.
 */
const flatten = (node: unknown): unknown => {
  if (Array.isArray(node)) return node.map(flatten)
  if (!isObject(node)) return node
  const entries = Object.entries(node).map(([key, value]) => [key, flatten(value)] as const)
  const flat: Record<string, unknown> = Object.fromEntries(entries)
  const parts = flat.allOf
  if (!Array.isArray(parts)) return flat
  const { allOf: _, ...merged } = flat
  for (const part of parts) {
    const isNew = (key: string) => key === "description" || !(key in merged)
    if (!isObject(part) || !Object.keys(part).every(isNew)) return flat
    Object.assign(merged, part)
  }
  return merged
}

/** Rules between the fields of one definition, which the schema's types do not say. */
export type ExtraRules = Readonly<Record<string, ReadonlyArray<JsonSchemaObject>>>

/** The JSON Schema of a file, with `rules` added to the definitions that they are named for. */
export const jsonSchemaOf = (
  schema: Schema.Top,
  options: { readonly closed: boolean; readonly rules: ExtraRules }
): JsonSchemaObject => {
  const { definitions, schema: root } = Schema.toJsonSchemaDocument(schema, {
    onExcessProperty: options.closed ? "error" : "ignore"
  })
  const flat = flatten(definitions) as Readonly<Record<string, JsonSchemaObject>>
  const withRules = Object.fromEntries(
    Object.entries(flat).map(([name, definition]) => {
      const rules = options.rules[name]
      return [
        name,
        rules === undefined
          ? definition
          : { ...definition, allOf: [...((definition.allOf as Array<unknown>) ?? []), ...rules] }
      ]
    })
  )
  return { $schema: JsonSchema.META_SCHEMA_URI_DRAFT_2020_12, ...root, $defs: withRules }
}

const named = (key: string): JsonSchemaObject => ({
  required: [key],
  properties: { [key]: { not: { type: "null" } } }
})

const activationRules: ReadonlyArray<JsonSchemaObject> = [
  {
    description: "Name only one of activation and idleTimeoutMs.",
    not: { allOf: [named("activation"), named("idleTimeoutMs")] }
  },
  {
    description: "Only an on-request instance sleeps.",
    if: { properties: { desiredState: { enum: ["running", "stopped"] } } },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    then: {
      properties: {
        activation: {
          properties: { sleepWhen: { properties: { kind: { const: "never" } } } }
        }
      }
    }
  }
]

/** What a schema cannot say of `desired.json`, and the decoder refuses nevertheless. */
export const UNSAYABLE_OF_DOCUMENT = [
  "an id or a hostname that is named twice",
  "an instance on a volume that the document does not name, or that is another app's",
  "an export of another app's volume",
  "a key that an object names twice",
  "half of a surrogate pair in a string",
  "a text that is not UTF-8, nests deeper than 512 levels, or has more than 64 MiB"
] as const

/** The JSON Schema of `desired.json`. Fields that it does not name are allowed. */
export const desiredJsonSchema = (): JsonSchemaObject =>
  jsonSchemaOf(HostDesiredState, {
    closed: false,
    rules: { [identifierOf(DesiredInstance)]: activationRules }
  })

const identifierOf = (schema: Schema.Top): string => String(schema.ast.annotations?.identifier)
