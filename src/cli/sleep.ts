/** `nibrunnerd sleep`: puts an app to sleep by hand. */
import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import { readConfig } from "./config-file.ts"
import { paragraphs } from "./help.ts"
import type { OpenCommander } from "./host-access.ts"

/** @param open brings the way to the daemon; `bin/` knows how */
export const sleep = <E, R>(open: OpenCommander<E, R>) =>
  Command.make(
    "sleep",
    { app: Argument.String("APP").pipe(Argument.withDescription("The app's id.")) },
    Effect.fn(function* ({ app }) {
      const { config } = yield* readConfig
      const { HostCommander } = yield* Effect.promise(() => import("../services/HostControl.ts"))
      yield* Effect.flatMap(HostCommander, (commander) => commander.sleep(app)).pipe(
        Effect.provide(open(config))
      )
    })
  ).pipe(
    Command.withShortDescription("Put an app to sleep now."),
    Command.withDescription(
      paragraphs(
        "Put an on-request app to sleep now instead of after its quiet time, and return when it sleeps: to try what its wake is like, or to make room. Whatever comes for it next wakes it.",
        "The daemon of this host is asked by its private socket, control.sock in paths.runtime_dir. Exits with 1 and the reason when the app does not sleep: something is open, it is not on-request, or it is not up."
      )
    ),
    Command.withExamples([{ command: "nibrunnerd sleep shop", description: "Put the app shop to sleep" }])
  )
