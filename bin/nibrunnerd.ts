/** The one place where what decides meets what does: command line in, layers wired, main run. */
import { fileURLToPath } from "node:url"
import * as NodeChildProcessSpawner from "@effect/platform-node/NodeChildProcessSpawner"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodePath from "@effect/platform-node/NodePath"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeStdio from "@effect/platform-node/NodeStdio"
import { Cause, Effect, Exit, Layer, Logger, References, Runtime } from "effect"
import { CliConfig, Command, GlobalFlag } from "effect/cli"
import { layerOutputTerminal } from "../layers/terminal/output.ts"
import packageManifest from "../package.json" with { type: "json" }
import { saidBy } from "../src/cli/failure.ts"
import { jsonLines, logLevel } from "../src/cli/log.ts"
import { nibrunnerd } from "../src/cli/main.ts"
import { layerUsage } from "../src/cli/usage.ts"
import type { HostSecrets } from "../src/config/host-env.ts"
import type { HostConfig } from "../src/config/schema.ts"

/** What starts this program, from the bundle as from its source. */
const launcher = fileURLToPath(new URL("../bin/nibrunnerd", import.meta.url))

// Each is loaded when a command takes it: the others start without it.
const host = {
  run: (config: HostConfig, secrets: HostSecrets) =>
    Effect.promise(() => import("./daemon.ts")).pipe(
      Effect.flatMap(({ runDaemon }) => runDaemon(config, secrets))
    ),
  view: (config: HostConfig) =>
    Effect.promise(() => import("../layers/view/host.ts")).pipe(
      Effect.map(({ layerHostView }) => layerHostView(config)),
      Layer.unwrap
    ),
  commander: (config: HostConfig) =>
    Effect.promise(() => import("../layers/control/client.ts")).pipe(
      Effect.map(({ layerControlClient }) => layerControlClient({ runtimeDir: config.paths.runtime_dir })),
      Layer.unwrap
    ),
  installer: () =>
    Effect.promise(() => import("../layers/install/layer.ts")).pipe(
      Effect.map(({ layerInstaller }) =>
        layerInstaller({
          launcher,
          version: packageManifest.version,
          files: [launcher, fileURLToPath(import.meta.url)]
        })
      ),
      Layer.unwrap
    ),
  logs: (config: HostConfig) =>
    Effect.promise(() => import("../layers/logs/read.ts")).pipe(
      Effect.map(({ layerFileLogReader }) => layerFileLogReader({ stateDir: config.paths.state_dir })),
      Layer.unwrap
    )
}

const logging = Layer.unwrap(
  Effect.map(logLevel, (level) =>
    Layer.mergeAll(Logger.layer([jsonLines]), Layer.succeed(References.MinimumLogLevel, level))
  )
)

const platform = NodeChildProcessSpawner.layer.pipe(
  Layer.provideMerge(
    Layer.mergeAll(NodeFileSystem.layer, NodePath.layer, NodeStdio.layer, layerOutputTerminal)
  )
)

/** The signal that has told the process to end. */
let told: NodeJS.Signals | undefined

/** Whether a file is being waited for, that may never come: a pipe without a writer, a disk of another machine. */
const waitsForFile = () => process.getActiveResourcesInfo().includes("FSReqCallback")

/** A command that was told to end has succeeded. Node would end no sooner than the wait for a file; a signal does. */
const teardown: Runtime.Teardown = (exit, onExit) => {
  if (Exit.isSuccess(exit) || !Cause.hasInterruptsOnly(exit.cause))
    return Runtime.defaultTeardown(exit, onExit)
  if (told === undefined || process.argv[2] === "daemon" || !waitsForFile()) return onExit(0)
  process.removeAllListeners(told)
  process.kill(process.pid, told)
}

/** What a stuck ending may take before the process ends all the same: nothing that must survive depends on it. */
const LAST_CALL_MS = 30_000

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.once(signal, () => {
    told = signal
    setTimeout(() => process.exit(1), LAST_CALL_MS).unref()
    process.once(signal, () => process.exit(1))
  })
}

// Who reads from us may have read enough, as `head` does.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit(0)
  process.stderr.write(`nibrunnerd: the output cannot be written: ${error.message}\n`)
  process.exit(1)
})

Command.run(nibrunnerd(host), { version: packageManifest.version }).pipe(
  saidBy("nibrunnerd"),
  Effect.provide(logging),
  Effect.provide(layerUsage),
  Effect.provide(
    CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] })
  ),
  Effect.provide(platform),
  NodeRuntime.runMain({ teardown })
)
