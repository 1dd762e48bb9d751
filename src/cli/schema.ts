/** `nibrunnerd schema`: the JSON Schemas of our files. */
import { Console, Effect } from "effect"
import { Argument, Command } from "effect/cli"

export const schema = Command.make(
  "schema",
  {
    name: Argument.Literals("NAME", ["desired", "reported", "config"]).pipe(
      Argument.withDescription("Which file: desired, reported or config.")
    )
  },
  Effect.fn(function* ({ name }) {
    // Loaded when asked for: the other commands start without it.
    const { jsonSchemas } = yield* Effect.promise(() => import("./json-schemas.ts"))
    yield* Console.log(JSON.stringify(jsonSchemas[name](), null, 2))
  })
).pipe(
  Command.withDescription(
    "Print the JSON Schema (draft 2020-12) of desired.json, reported.json or config.toml, for an editor."
  )
)
