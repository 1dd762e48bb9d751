/** `nibrunnerd daemon`: the host itself. */
import { Cause, Effect } from "effect"
import { Command } from "effect/cli"
import { readConfig } from "./config-file.ts"
import { Failed } from "./failure.ts"
import { paragraphs } from "./help.ts"
import type { RunHost } from "./host-access.ts"

/** The daemon's reader expects its log on stderr, the last line of it too. */
const logged = <A, E, R>(host: Effect.Effect<A, E, R>) =>
  Effect.catchCause(host, (cause): Effect.Effect<never, E | Failed> => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause)
    const error: unknown = Cause.squash(cause)
    const sentence = `the daemon ends: ${error instanceof Error ? error.message : String(error)}`
    // Where a fault of ours happened is worth a stack; a typed error has said all in its sentence.
    return (Cause.hasDies(cause) ? Effect.logFatal(sentence, cause) : Effect.logFatal(sentence)).pipe(
      Effect.andThen(Effect.fail(new Failed()))
    )
  })

/** @param run brings the reconciler and its layers together; `bin/` knows how */
export const daemon = <E, R>(run: RunHost<E, R>) =>
  Command.make(
    "daemon",
    {},
    Effect.fn(function* () {
      yield* Effect.gen(function* () {
        const { file, config } = yield* readConfig
        yield* Effect.logInfo(`nibrunnerd starts with ${file}`)
        const { readHostSecrets } = yield* Effect.promise(() => import("./host-secrets.ts"))
        yield* run(config, yield* readHostSecrets(config, file))
      }).pipe(logged)
    })
  ).pipe(
    Command.withShortDescription("Run this host."),
    Command.withDescription(
      paragraphs(
        "Run this host in the foreground until SIGTERM or SIGINT. Its microVMs go on without it; the next daemon takes them up.",
        "The configuration is the file that NIBRUNNER_CONFIG names, else /etc/nibrunner/config.toml. The daemon's own log goes to stderr, one JSON object a line; NIBRUNNER_LOG is debug, info (the default), warn or error.",
        "What a configuration needs of secrets (for s3:// stores and for ZeroFS) is read from the environment: under systemd from host.env beside the configuration. A variable that is needed and not set is refused by name before anything is touched."
      )
    ),
    Command.withExamples([
      { command: "nibrunnerd daemon", description: "Run the host as /etc/nibrunner/config.toml says" },
      {
        command: "NIBRUNNER_CONFIG=./config.toml NIBRUNNER_LOG=debug nibrunnerd daemon",
        description: "With another configuration, and every step in the log"
      }
    ])
  )
