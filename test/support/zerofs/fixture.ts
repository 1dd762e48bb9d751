/** A ZeroFS to test with: the stand-in, or the real one where `ZEROFS_BINARY` names it. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import * as fs from "node:fs"
import { createConnection } from "node:net"
import * as path from "node:path"
import { Effect, type Scope } from "effect"
import { zerofsEnvironment } from "../../../layers/volume/zerofs/command.ts"
import type { ZerofsSection } from "../../../src/config/schema.ts"
import { renderReaderConfig, renderZerofsConfig } from "../../../src/volume/zerofs-config.ts"
import { temporaryDirectory } from "../temporary.ts"

/** Whether the tests run against ZeroFS itself. */
export const isReal = (process.env.ZEROFS_BINARY ?? "") !== ""

const PASSWORD = "a password of this test"

/** ZeroFS needs it; the daemon has it from host.env. */
process.env.ZEROFS_ENCRYPTION_PASSWORD ??= PASSWORD

export interface TestZerofs {
  readonly directory: string
  readonly section: ZerofsSection
  readonly start: Effect.Effect<void>
  /** As systemd stops it. */
  readonly stop: Effect.Effect<void>
  /** Without a chance to write anything. */
  readonly kill: Effect.Effect<void>
  /** Has it stand still, and go on. */
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
}

const binaryIn = (directory: string): string => {
  if (isReal) return path.resolve(process.env.ZEROFS_BINARY ?? "")
  const script = path.join(directory, "zerofs")
  const program = path.join(import.meta.dirname, "zerofs.ts")
  fs.writeFileSync(script, `#!/bin/sh\nexec "${process.execPath}" "${program}" "$@"\n`, { mode: 0o755 })
  return script
}

const listens = (socketPath: string): Effect.Effect<boolean> =>
  Effect.callback((resume) => {
    const socket = createConnection(socketPath)
    socket.on("connect", () => {
      socket.destroy()
      resume(Effect.succeed(true))
    })
    socket.on("error", () => resume(Effect.succeed(false)))
  })

const ended = (child: ChildProcess): Effect.Effect<void> =>
  Effect.callback((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("exit", () => resume(Effect.void))
  })

/** Signals a process of the test's own and all that it has started. */
const signal = (child: ChildProcess | undefined, name: NodeJS.Signals) =>
  Effect.sync(() => {
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
    process.kill(-child.pid, name)
  })

/** A ZeroFS that is not started yet, on a store of its own that is a directory. Its sockets' paths are short. */
export const testZerofs: Effect.Effect<TestZerofs, never, Scope.Scope> = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  const at = (name: string) => path.join(directory, name)
  const section: ZerofsSection = {
    binary: binaryIn(directory),
    config_file: at("zerofs.toml"),
    mount_path: at("mount"),
    nbd_socket_path: at("nbd.sock"),
    ninep_socket_path: at("9p.sock"),
    rpc_socket_path: at("rpc.sock"),
    storage_url: at("store"),
    cache_dir: at("cache"),
    cache_disk_gib: 1,
    cache_memory_gib: 1,
    checkpoint_runtime_dir: at("reader"),
    checkpoint_config_file: at("reader.toml"),
    checkpoint_cache_dir: at("reader-cache")
  }
  for (const name of ["store", "cache", "reader-cache"]) fs.mkdirSync(at(name))
  fs.writeFileSync(section.config_file, renderZerofsConfig(section))
  fs.writeFileSync(section.checkpoint_config_file, renderReaderConfig(section))

  let child: ChildProcess | undefined
  const start = Effect.gen(function* () {
    const log = fs.openSync(at("log"), "a")
    child = spawn(section.binary, ["run", "-c", section.config_file], {
      detached: true,
      stdio: ["ignore", log, log],
      env: zerofsEnvironment()
    })
    fs.closeSync(log)
    for (const socket of [section.ninep_socket_path, section.nbd_socket_path, section.rpc_socket_path]) {
      while (!(yield* listens(socket))) {
        if (child.exitCode !== null) throw new Error(fs.readFileSync(at("log"), "utf8").slice(-2000))
        yield* Effect.sleep(20)
      }
    }
  })
  const end = (name: NodeJS.Signals) =>
    Effect.suspend(() => {
      const running = child
      return running === undefined ? Effect.void : Effect.andThen(signal(running, name), ended(running))
    })
  yield* Effect.addFinalizer(() => end("SIGKILL"))
  return {
    directory,
    section,
    start,
    stop: end("SIGTERM"),
    kill: end("SIGKILL"),
    freeze: Effect.suspend(() => signal(child, "SIGSTOP")),
    thaw: Effect.suspend(() => signal(child, "SIGCONT"))
  }
})

/** Has the stand-in's store refuse whatever it is asked, as when its credentials have expired; and take it back. */
export const refuseCredentials = ({ section }: TestZerofs, refuse: boolean) =>
  Effect.sync(() => {
    const mark = path.join(section.storage_url, "no-credentials")
    if (refuse) fs.writeFileSync(mark, "")
    else fs.rmSync(mark, { force: true })
  })

/** The relay, compiled into a directory of the test's. */
export const compiledRelay = Effect.map(temporaryDirectory, (directory) => {
  const relay = path.join(directory, "nbd-relay")
  const source = path.join(import.meta.dirname, "../../../guest/image/nbd-relay.c")
  execFileSync("musl-gcc", ["-D_GNU_SOURCE", "-std=gnu17", "-O2", "-static", "-o", relay, source])
  return relay
})
