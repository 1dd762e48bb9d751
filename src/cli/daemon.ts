/** `nibrunnerd daemon`: the host itself. */
import { Effect, type Layer } from "effect"
import { Command } from "effect/cli"
import type { HostConfig } from "../config/schema.ts"
import { runHost } from "../reconcile/host.ts"
import { readConfig } from "./config-file.ts"

/** The host's services, made of its configuration. */
export type LiveLayer<E, R> = (config: HostConfig) => Layer.Layer<Effect.Services<typeof runHost>, E, R>

/** @param live builds the host's services; `bin/` knows how */
export const daemon = <E, R>(live: LiveLayer<E, R>) =>
  Command.make(
    "daemon",
    {},
    Effect.fn(function* () {
      const { file, config } = yield* readConfig
      yield* Effect.logInfo(`nibrunnerd starts with ${file}`)
      yield* runHost.pipe(Effect.provide(live(config)))
    })
  ).pipe(
    Command.withDescription(
      "Run this host in the foreground until SIGTERM or SIGINT. Its microVMs go on without it; the next daemon takes them up."
    )
  )
