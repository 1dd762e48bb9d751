/** `nibrunnerd schema`: the JSON Schemas of our files. */
import { Console, Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { configJsonSchema } from "../config/json-schema.ts"
import { desiredJsonSchema } from "../document/json-schema.ts"
import { reportedJsonSchema } from "../report/json-schema.ts"

const schemas = {
  desired: desiredJsonSchema,
  reported: reportedJsonSchema,
  config: configJsonSchema
} as const

export const schema = Command.make(
  "schema",
  {
    name: Argument.Literals("NAME", ["desired", "reported", "config"]).pipe(
      Argument.withDescription("Which file: desired, reported or config.")
    )
  },
  Effect.fn(function* ({ name }) {
    yield* Console.log(JSON.stringify(schemas[name](), null, 2))
  })
).pipe(
  Command.withDescription(
    "Print the JSON Schema (draft 2020-12) of desired.json, reported.json or config.toml, for an editor."
  )
)
