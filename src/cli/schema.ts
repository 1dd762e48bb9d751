/** `nibrunnerd schema`: the JSON Schemas of our files. */
import { Console, Effect } from "effect"
import { Argument, Command } from "effect/cli"

// Loaded when asked for: no other command needs them.
const schemas = {
  desired: Effect.promise(() => import("../document/json-schema.ts")).pipe(
    Effect.map(({ desiredJsonSchema }) => desiredJsonSchema())
  ),
  reported: Effect.promise(() => import("../report/json-schema.ts")).pipe(
    Effect.map(({ reportedJsonSchema }) => reportedJsonSchema())
  ),
  config: Effect.promise(() => import("../config/json-schema.ts")).pipe(
    Effect.map(({ configJsonSchema }) => configJsonSchema())
  )
} as const

export const schema = Command.make(
  "schema",
  {
    name: Argument.Literals("NAME", ["desired", "reported", "config"]).pipe(
      Argument.withDescription("Which file: desired, reported or config.")
    )
  },
  Effect.fn(function* ({ name }) {
    yield* Console.log(JSON.stringify(yield* schemas[name], null, 2))
  })
).pipe(
  Command.withDescription(
    "Print the JSON Schema (draft 2020-12) of desired.json, reported.json or config.toml, for an editor."
  )
)
