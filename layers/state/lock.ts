/** One daemon per state directory. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { DatabaseSync } from "node:sqlite"
import { Effect, Schema, type Scope } from "effect"
import { HostStateError } from "../../src/services/HostState.ts"
import { makeDirectory, makePrivateFile, replaceFile } from "../files/durable.ts"
import { ifPresent, onFile } from "../files/problem.ts"

/** Another daemon runs on this directory. `key` is that of the configuration. */
export class StateDirectoryInUse extends Schema.TaggedError<StateDirectoryInUse>()("StateDirectoryInUse", {
  stateDir: Schema.String,
  key: Schema.String,
  pid: Schema.optionalKey(Schema.Int)
}) {
  override get message() {
    const who = this.pid === undefined ? "another daemon" : `the daemon with pid ${this.pid}`
    return `${who} is using ${this.stateDir} (${this.key}); two daemons must not share it`
  }
}

/** Milliseconds that a daemon waits for the lock: who only looks whether it is held has it for less than one. */
const LOOKED_AT = 250

const LOCK = "daemon.lock"
const lockFile = (stateDir: string): string => path.join(stateDir, "state", LOCK)

/**
 * Holds the state directory for as long as the scope lasts; fails when another daemon holds it. The lock
 * is the kernel's (SQLite's, on an empty database; Node has no flock): it ends with the process however that
 * ends, so no lock is ever left behind. The pid lies beside it for the sentence only.
 */
export const lockStateDirectory = (stateDir: string) =>
  lock(stateDir, path.join(stateDir, "state"), "paths.state_dir")

/** The same for the directory of the VMMs' sockets: who starts there ends whatever VMM is not its own. */
export const lockRuntimeDirectory = (runtimeDir: string) =>
  lock(runtimeDir, path.join(runtimeDir, "daemon"), "paths.runtime_dir")

const lock = (
  stateDir: string,
  directory: string,
  key: string
): Effect.Effect<void, StateDirectoryInUse | HostStateError, Scope.Scope> =>
  Effect.gen(function* () {
    const file = path.join(directory, LOCK)
    const pidFile = path.join(directory, "daemon.pid")
    yield* makeDirectory(directory, 0o700)
    yield* makePrivateFile(file)
    const held = yield* Effect.acquireRelease(
      onLock(() => new DatabaseSync(file, { timeout: LOOKED_AT })),
      (open) => Effect.sync(() => open.close())
    )
    // Nothing is ever written, so there is no journal to be kept beside it.
    yield* onLock(() => held.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE")).pipe(
      Effect.catchIf(isBusy, () =>
        Effect.flatMap(readPid(pidFile), (pid) =>
          Effect.fail(new StateDirectoryInUse({ stateDir, key, ...pid }))
        )
      )
    )
    yield* replaceFile(pidFile, Buffer.from(`${process.pid}\n`), 0o600)
  }).pipe(
    Effect.catchTag("FileProblem", (cause) => Effect.fail(new HostStateError({ operation: LOCKING, cause })))
  )

/** Whether a daemon holds the state directory at this moment. Fails where the lock may not be looked at. */
export const isStateDirectoryHeld = (stateDir: string): Effect.Effect<boolean, HostStateError> =>
  Effect.gen(function* () {
    const file = lockFile(stateDir)
    // Where no daemon has ever run there is no lock to be held.
    const found = yield* ifPresent(onFile(file, () => fs.stat(file))).pipe(
      Effect.mapError((cause) => new HostStateError({ operation: LOOKING, cause }))
    )
    if (found === undefined) return false
    const lock = yield* Effect.acquireRelease(
      onLock(() => new DatabaseSync(file, { readOnly: true, timeout: 0 })),
      (open) => Effect.sync(() => open.close())
    )
    return yield* onLock(() => lock.exec("SELECT name FROM sqlite_schema")).pipe(
      Effect.as(false),
      Effect.catchIf(isBusy, () => Effect.succeed(true))
    )
  }).pipe(Effect.scoped)

const LOOKING = "look whether a daemon runs"
const LOCKING = "lock the state directory"

const onLock = <A>(run: () => A): Effect.Effect<A, HostStateError> =>
  Effect.try({ try: run, catch: (cause) => new HostStateError({ operation: LOCKING, cause }) })

/** SQLITE_BUSY: another process has the lock. */
const isBusy = (error: HostStateError): boolean =>
  error.cause instanceof Error && "errcode" in error.cause && error.cause.errcode === 5

/** The pid is only a help; without it the sentence still says what is wrong. */
const readPid = (file: string): Effect.Effect<{ readonly pid?: number }> =>
  onFile(file, () => fs.readFile(file, "utf8")).pipe(
    Effect.map(Number),
    Effect.map((pid) => (Number.isInteger(pid) && pid > 0 ? { pid } : {})),
    Effect.orElseSucceed(() => ({}))
  )
