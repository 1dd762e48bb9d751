/** `nibrunnerd daemon`: the host itself. */
import { Effect } from "effect"
import { Command } from "effect/cli"
import type { HostConfig } from "../config/schema.ts"
import { readConfig } from "./config-file.ts"

/** Runs the host of a configuration until it is interrupted. */
export type RunHost<E, R> = (config: HostConfig) => Effect.Effect<void, E, R>

/** @param runHost brings the reconciler and its layers together; `bin/` knows how */
export const daemon = <E, R>(runHost: RunHost<E, R>) =>
  Command.make(
    "daemon",
    {},
    Effect.fn(function* () {
      const { file, config } = yield* readConfig
      yield* Effect.logInfo(`nibrunnerd starts with ${file}`)
      yield* runHost(config)
    })
  ).pipe(
    Command.withShortDescription("Run this host."),
    Command.withDescription(
      [
        "Run this host in the foreground until SIGTERM or SIGINT. Its microVMs go on without it; the next daemon takes them up.",
        "The configuration is the file that NIBRUNNER_CONFIG names, else /etc/nibrunner/config.toml. The daemon's own log goes to stderr, one JSON object a line; NIBRUNNER_LOG is debug, info (the default), warn or error."
      ].join("\n\n")
    ),
    Command.withExamples([
      { command: "nibrunnerd daemon", description: "Run the host as /etc/nibrunner/config.toml says" },
      {
        command: "NIBRUNNER_CONFIG=./config.toml NIBRUNNER_LOG=debug nibrunnerd daemon",
        description: "With another configuration, and every step in the log"
      }
    ])
  )
