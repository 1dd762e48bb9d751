import { type JsonSchemaObject, jsonSchemaOf } from "../document/json-schema.ts"
import { HostReport } from "./schema.ts"

/** The JSON Schema of `reported.json`. A reader should expect fields that it does not name. */
export const reportedJsonSchema = (): JsonSchemaObject =>
  jsonSchemaOf(HostReport, { closed: false, rules: {} })
