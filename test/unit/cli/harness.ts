/** The real command line on a host of its own: its configuration, its state directory, and a terminal. */
import { spawn } from "node:child_process"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, ConfigProvider, Effect, Exit, Layer, Runtime, Terminal } from "effect"
import { CliConfig, Command, GlobalFlag, TerminalCapabilities } from "effect/cli"
import { TestConsole } from "effect/testing"
import { layerControlClient } from "../../../layers/control/client.ts"
import { identify } from "../../../layers/hypervisor/qemu/process.ts"
import { layerFileLogReader } from "../../../layers/logs/read.ts"
import { lockDirectory } from "../../../layers/state/lock.ts"
import { layerSqliteState } from "../../../layers/state/sqlite.ts"
import { layerHostView } from "../../../layers/view/host.ts"
import { saidBy } from "../../../src/cli/failure.ts"
import { nibrunnerd } from "../../../src/cli/main.ts"
import { layerUsage } from "../../../src/cli/usage.ts"
import type { AppId } from "../../../src/document/schema.ts"
import { HostState } from "../../../src/services/HostState.ts"
import type { MachineRecord } from "../../../src/services/Hypervisor.ts"
import { Installer } from "../../../src/services/Installer.ts"
import { temporaryDirectory } from "../../support/temporary.ts"
import { baseConfig } from "../config/arbitraries.ts"
import { type DottedKeys, tomlOf } from "../config/toml-text.ts"

export interface Screen {
  readonly colours?: boolean
  /** A terminal that can be drawn on, so wide and high; without it stdout is a pipe. */
  readonly size?: { readonly columns: number; readonly rows: number }
}

const commandLine = nibrunnerd({
  run: () => Effect.die("no test runs a daemon"),
  view: layerHostView,
  logs: (config) => layerFileLogReader({ stateDir: config.paths.state_dir }),
  commander: (config) => layerControlClient({ runtimeDir: config.paths.runtime_dir }),
  installer: () => Layer.effect(Installer, Effect.die("no test lays out a machine"))
})

const quoted = (text: string) => JSON.stringify(text)

/** A shell that waits, under the command line of a VMM. */
const vmm = Effect.fnUntraced(function* (runtimeDir: string, appId: AppId, slot: number) {
  const machineId = slot.toString(16).padStart(16, "0")
  const words = ["-name", `nibrunner-${machineId}@${runtimeDir}/vm/${slot}`]
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn("/bin/sh", ["-c", "read line", ...words], { stdio: ["pipe", "ignore", "ignore"] })
    ),
    (running) => Effect.sync(() => running.kill("SIGKILL"))
  )
  const process = identify(child.pid ?? 0)
  const record = { machineId, appId, slot, guestImageVersion: "image-1" }
  return (process === undefined ? record : { ...record, process }) satisfies MachineRecord
})

/** A host whose folder goes with the scope. `config` changes what its configuration says. */
export const makeHost = Effect.fnUntraced(function* (config: DottedKeys = {}) {
  const folder = yield* temporaryDirectory
  const stateDir = path.join(folder, "state")
  const file = path.join(folder, "config.toml")
  const write = (name: string, contents: string) =>
    Effect.promise(async () => {
      const target = path.join(folder, name)
      await fs.mkdir(path.dirname(target), { recursive: true })
      await fs.writeFile(target, contents)
      return target
    })
  yield* write(
    "config.toml",
    tomlOf({
      ...baseConfig,
      "paths.state_dir": quoted(stateDir),
      "paths.runtime_dir": quoted(path.join(folder, "run")),
      ...config
    })
  )
  const drawn: Array<string> = []

  const run = Effect.fnUntraced(function* (screen: Screen, args: ReadonlyArray<string>) {
    const [outBefore, errBefore] = [yield* TestConsole.logLines, yield* TestConsole.errorLines]
    const terminal = Terminal.make({
      columns: Effect.succeed(screen.size?.columns ?? 0),
      rows: Effect.succeed(screen.size?.rows ?? 0),
      size: Effect.die("not asked"),
      readInput: Effect.die("not asked"),
      readLine: Effect.die("not asked"),
      display: (text) =>
        Effect.sync(() => {
          drawn.push(text)
        })
    })
    const exit = yield* Command.runWith(commandLine, { version: "0" })(args).pipe(
      saidBy("nibrunnerd"),
      Effect.provideService(Terminal.Terminal, terminal),
      Effect.provideService(TerminalCapabilities.TerminalCapabilities, {
        canColor: screen.colours === true,
        canAnimate: screen.size !== undefined,
        canPrompt: false
      }),
      Effect.provide([
        layerUsage,
        CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] }),
        ConfigProvider.layer(ConfigProvider.fromUnknown({ NIBRUNNER_CONFIG: file })),
        NodeServices.layer
      ]),
      Effect.exit
    )
    const text = (all: ReadonlyArray<unknown>, before: ReadonlyArray<unknown>) =>
      all.slice(before.length).map(String).join("\n")
    return {
      code: Exit.isSuccess(exit) ? 0 : Runtime.getErrorExitCode(Cause.squash(exit.cause)),
      out: text(yield* TestConsole.logLines, outBefore),
      err: text(yield* TestConsole.errorLines, errBefore)
    }
  })

  return {
    folder,
    stateDir,
    write,
    /** What was drawn on the terminal, in order. */
    drawn,
    /** Runs a command with stdout in a pipe: its exit code and all that it prints. */
    run: (...args: ReadonlyArray<string>) => run({}, args),
    runOn: (screen: Screen, ...args: ReadonlyArray<string>) => run(screen, args),
    /** A process that looks like the VMM of a microVM of this host, for the length of the test: its record. */
    machine: (appId: AppId, slot: number) => vmm(path.join(folder, "run"), appId, slot),
    /** Holds the host as a daemon does, for the length of the test; nothing can be noted any more. */
    daemonRuns: lockDirectory({ key: "paths.state_dir", path: stateDir }),
    /** What a daemon would have noted. */
    note: <A, E>(use: (state: HostState["Service"]) => Effect.Effect<A, E>) =>
      HostState.use(use).pipe(Effect.provide(layerSqliteState({ stateDir })), Effect.scoped)
  }
})
