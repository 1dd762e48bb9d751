/** One daemon per state directory. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { DatabaseSync } from "node:sqlite"
import { Effect, Schema, type Scope } from "effect"
import { HostStateError } from "../../src/services/HostState.ts"
import { makeDirectory, makePrivateFile, replaceFile } from "../files/durable.ts"
import { onFile } from "../files/problem.ts"

/** Another daemon runs on this state directory. */
export class StateDirectoryInUse extends Schema.TaggedError<StateDirectoryInUse>()("StateDirectoryInUse", {
  stateDir: Schema.String,
  pid: Schema.optionalKey(Schema.Int)
}) {
  override get message() {
    const who = this.pid === undefined ? "another daemon" : `the daemon with pid ${this.pid}`
    return `${who} is using ${this.stateDir} (paths.state_dir); two daemons must not share it`
  }
}

/**
 * Holds the state directory for as long as the scope lasts; fails at once when another daemon holds it. The lock
 * is the kernel's (SQLite's, on an empty database; Node has no flock): it ends with the process however that
 * ends, so no lock is ever left behind. The pid lies beside it for the sentence only.
 */
export const lockStateDirectory = (
  stateDir: string
): Effect.Effect<void, StateDirectoryInUse | HostStateError, Scope.Scope> =>
  Effect.gen(function* () {
    const directory = path.join(stateDir, "state")
    const file = path.join(directory, "daemon.lock")
    const pidFile = path.join(directory, "daemon.pid")
    yield* makeDirectory(directory, 0o700)
    yield* makePrivateFile(file)
    const lock = yield* Effect.acquireRelease(
      onLock(() => new DatabaseSync(file, { timeout: 0 })),
      (open) => Effect.sync(() => open.close())
    )
    // Nothing is ever written, so there is no journal to be kept beside it.
    yield* onLock(() => lock.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE")).pipe(
      Effect.catchIf(isBusy, () =>
        Effect.flatMap(readPid(pidFile), (pid) => Effect.fail(new StateDirectoryInUse({ stateDir, ...pid })))
      )
    )
    yield* replaceFile(pidFile, Buffer.from(`${process.pid}\n`), 0o600)
  }).pipe(
    Effect.catchTag("FileProblem", (cause) => Effect.fail(new HostStateError({ operation: LOCKING, cause })))
  )

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
