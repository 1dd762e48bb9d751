/** The JSON Schemas of our files by name, in a module of their own: only one command needs them. */
import { configJsonSchema } from "../config/json-schema.ts"
import { desiredJsonSchema } from "../document/json-schema.ts"
import { reportedJsonSchema } from "../report/json-schema.ts"

export const jsonSchemas = {
  desired: desiredJsonSchema,
  reported: reportedJsonSchema,
  config: configJsonSchema
} as const
