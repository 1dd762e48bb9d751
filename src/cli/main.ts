/** The command line of `nibrunnerd`. */
import { Command } from "effect/cli"
import { check } from "./check.ts"
import { daemon } from "./daemon.ts"
import { paragraphs } from "./help.ts"
import type { OpenCommander, OpenInstaller, OpenLogs, OpenView, RunHost } from "./host-access.ts"
import { install } from "./install.ts"
import { logs } from "./logs.ts"
import { plan } from "./plan.ts"
import { schema } from "./schema.ts"
import { sleep } from "./sleep.ts"
import { start } from "./start.ts"
import { status } from "./status.ts"

/** @param host the ways to the host; `bin/` knows them */
export const nibrunnerd = <
  E,
  R,
  ViewError,
  ViewNeeds,
  LogError,
  LogNeeds,
  AskError,
  AskNeeds,
  LayError,
  LayNeeds
>(host: {
  readonly run: RunHost<E, R>
  readonly view: OpenView<ViewError, ViewNeeds>
  readonly logs: OpenLogs<LogError, LogNeeds>
  readonly commander: OpenCommander<AskError, AskNeeds>
  readonly installer: OpenInstaller<LayError, LayNeeds>
}) =>
  Command.make("nibrunnerd").pipe(
    Command.withDescription(
      paragraphs(
        "Turns this machine into a host for many apps, each in a microVM of its own, as desired.json says.",
        "nibrunnerd COMMAND --help shows how a command is used, with examples. Exit codes: 0 all is well, 1 the answer is no, 2 the call is wrong. --completions bash, zsh or fish prints a script that completes the commands."
      )
    ),
    Command.withSubcommands([
      install(host.installer),
      start(host.installer),
      daemon(host.run),
      Command.withShortDescription(check, "Find every problem of documents and configurations."),
      plan(host.view),
      status(host.view),
      logs(host.logs),
      sleep(host.commander),
      Command.withShortDescription(schema, "Print the JSON Schema of one of the host's files.")
    ]),
    Command.withExamples([
      { command: "nibrunnerd check desired.json", description: "Whether a document is one" },
      { command: "nibrunnerd plan desired.json", description: "What this host would do with it" },
      { command: "nibrunnerd status --watch", description: "How its apps are" },
      { command: "nibrunnerd logs shop -f", description: "What the app shop prints" },
      { command: ". <(nibrunnerd --completions bash)", description: "Complete the commands in this shell" }
    ])
  )
