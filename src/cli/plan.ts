/** `nibrunnerd plan`: what this host would do with a document. */
import { Effect } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { readConfig } from "./config-file.ts"
import { paragraphs } from "./help.ts"
import type { OpenView } from "./host-access.ts"

/** @param view brings the host's notes; `bin/` knows how */
export const plan = <E, R>(view: OpenView<E, R>) =>
  Command.make(
    "plan",
    {
      file: Argument.Path("FILE").pipe(Argument.withDescription("A desired.json.")),
      json: Flag.Boolean("json").pipe(
        Flag.withDefault(false),
        Flag.withDescription("Print one JSON object, on one line.")
      )
    },
    Effect.fn(function* ({ file, json }) {
      const { config } = yield* readConfig
      const { showPlan } = yield* Effect.promise(() => import("./show-plan.ts"))
      yield* showPlan(file, json).pipe(Effect.provide(view(config)))
    })
  ).pipe(
    Command.withShortDescription("Show what this host would do with a document."),
    Command.withDescription(
      paragraphs(
        "Show what this host would do if the document were put in place now, app by app, against what it runs. It reads the host's notes, beside a running daemon or without one, and changes nothing.",
        "It takes every step to succeed: what an image, a program or a health check comes to is known once they are tried. Exits with 1, and lists the problems, when the document is refused."
      )
    ),
    Command.withExamples([
      {
        command: "nibrunnerd plan desired.json",
        description: "Before it is moved to paths.desired_state_file"
      },
      {
        command:
          "nibrunnerd plan --json next.json | jq -r '.apps[] | select(any(.actions[]; .dataLost)) | .appId'",
        description: "The apps that would lose data"
      }
    ])
  )
