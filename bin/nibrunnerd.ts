/** The one place where what decides meets what does: command line in, layers wired, main run. */
import "effect/schema/SchemaJITCompiler/enable"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, Effect, Exit, Layer, Logger, References, Runtime, Schema } from "effect"
import { CliConfig, Command, GlobalFlag } from "effect/cli"
import packageManifest from "../package.json" with { type: "json" }
import type { RunHost } from "../src/cli/daemon.ts"
import { jsonLines, logLevel } from "../src/cli/log.ts"
import { nibrunnerd } from "../src/cli/main.ts"

// Loaded when the host is to run: the other commands start without it.
const runHost = ((config) =>
  Effect.promise(() => import("./daemon.ts")).pipe(
    Effect.flatMap(({ runDaemon }) => runDaemon(config))
  )) satisfies RunHost<unknown, unknown>

/** The call's words are wrong; the command line has said so already. */
class WrongUsage extends Schema.TaggedError<WrongUsage>()("WrongUsage", {}) {
  override readonly [Runtime.errorExitCode] = 2
  override readonly [Runtime.errorReported] = false
}

const logging = Layer.unwrap(
  Effect.map(logLevel, (level) =>
    Layer.mergeAll(Logger.layer([jsonLines]), Layer.succeed(References.MinimumLogLevel, level))
  )
)

/** A daemon that was told to end has succeeded. */
const teardown: Runtime.Teardown = (exit, onExit) =>
  Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)
    ? onExit(0)
    : Runtime.defaultTeardown(exit, onExit)

/** What a stuck ending may take before the process ends all the same: nothing that must survive depends on it. */
const LAST_CALL_MS = 30_000

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.once(signal, () => {
    setTimeout(() => process.exit(1), LAST_CALL_MS).unref()
    process.once(signal, () => process.exit(1))
  })
}

Command.run(nibrunnerd(runHost), { version: packageManifest.version }).pipe(
  Effect.catchTag("ShowHelp", (help) =>
    help.errors.length > 0 ? Effect.fail(new WrongUsage()) : Effect.void
  ),
  Effect.provide(logging),
  Effect.provide(
    CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] })
  ),
  Effect.provide(NodeServices.layer),
  NodeRuntime.runMain({ teardown })
)
