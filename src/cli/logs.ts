/** `nibrunnerd logs`: what an app has printed. */
import { Effect } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { readConfig } from "./config-file.ts"
import { paragraphs } from "./help.ts"
import type { OpenLogs } from "./host-access.ts"

/** Records that are shown unless the call says otherwise. */
const DEFAULT_LINES = 100

/** @param open brings the reader of logs; `bin/` knows how */
export const logs = <E, R>(open: OpenLogs<E, R>) =>
  Command.make(
    "logs",
    {
      app: Argument.String("APP").pipe(Argument.withDescription("The app's id.")),
      follow: Flag.Boolean("follow").pipe(
        Flag.withAlias("f"),
        Flag.withDefault(false),
        Flag.withDescription("Go on with what the app prints from now on, until Ctrl-C.")
      ),
      lines: Flag.Int("lines").pipe(
        Flag.withAlias("n"),
        Flag.filter(
          (count) => count >= 0,
          () => "a number of records, 0 or more"
        ),
        Flag.withDefault(DEFAULT_LINES),
        Flag.withDescription(`How many of the newest records, ${DEFAULT_LINES} unless told.`)
      )
    },
    Effect.fn(function* ({ app, follow, lines }) {
      const { config } = yield* readConfig
      const { showLogs } = yield* Effect.promise(() => import("./show-logs.ts"))
      yield* showLogs(app, { last: lines, follow }, config.paths.state_dir).pipe(Effect.provide(open(config)))
    })
  ).pipe(
    Command.withShortDescription("Show what an app has printed."),
    Command.withDescription(
      paragraphs(
        "Show what an app has printed, oldest first, one record a line: the time, the stream, the session and its sequence, the text. Lines of the host's own start with [nibrun].",
        "The host keeps two files of an app, of logs.keep_mib_per_app each; both are read, and followed as they rotate. Exits with 1 when this host knows no such app."
      )
    ),
    Command.withExamples([
      { command: "nibrunnerd logs shop", description: `The last ${DEFAULT_LINES} records of the app shop` },
      { command: "nibrunnerd logs shop -n 20 -f", description: "The last 20, then each as it is printed" },
      { command: "nibrunnerd logs shop -n 100000 | grep stderr", description: "What it has said on stderr" }
    ])
  )
