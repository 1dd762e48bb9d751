/** The command line of `nibrunnerd`. */
import { Command } from "effect/cli"
import { check } from "./check.ts"
import { daemon, type RunHost } from "./daemon.ts"
import { schema } from "./schema.ts"
import { status } from "./status.ts"

export const nibrunnerd = <E, R>(runHost: RunHost<E, R>) =>
  Command.make("nibrunnerd").pipe(
    Command.withDescription(
      "Turns this machine into a host for many apps, each in a microVM of its own, as desired.json says."
    ),
    Command.withSubcommands([daemon(runHost), check, status, schema])
  )
