/** One daemon for each directory that a daemon must have to itself. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { DatabaseSync } from "node:sqlite"
import { Effect, Schema, type Scope } from "effect"
import { DirectoryInUse, LockUnusable, type OwnDirectory } from "../../src/services/HostDirectories.ts"
import { makeDirectory, makePrivateFile, replaceFile } from "../files/durable.ts"
import { type FileProblem, ifPresent, onFile } from "../files/problem.ts"

/** Milliseconds that a daemon waits for the lock: who only looks whether it is held has it for less than one. */
const LOOKED_AT = 250

const LOCK = "daemon.lock"

/** Where the lock of each kind of directory lies in it: aside of all that is swept there, and of the names of apps. */
const lockedIn = new Map<OwnDirectory["key"], string>([
  ["paths.state_dir", "state"],
  ["paths.runtime_dir", "daemon"],
  ["paths.snapshot_dir", ".daemon"],
  ["volumes.zerofs.checkpoint_runtime_dir", "daemon"]
])

const lockDirectoryOf = ({ key, path: directory }: OwnDirectory): string =>
  path.join(directory, lockedIn.get(key) ?? ".")

const lockFile = (own: OwnDirectory): string => path.join(lockDirectoryOf(own), LOCK)

/**
 * Holds the directory for as long as the scope lasts; fails when another daemon holds it. The lock is the kernel's
 * (SQLite's, on an empty database; Node has no flock): it ends with the process however that ends, so no lock is ever
 * left behind. The pid lies beside it for the sentence only.
 */
export const lockDirectory = (
  own: OwnDirectory
): Effect.Effect<void, DirectoryInUse | LockUnusable, Scope.Scope> =>
  Effect.gen(function* () {
    const { key, path: directory } = own
    const file = lockFile(own)
    const pidFile = path.join(lockDirectoryOf(own), "daemon.pid")
    yield* makeDirectory(lockDirectoryOf(own), 0o700)
    yield* makePrivateFile(file)
    const held = yield* Effect.acquireRelease(
      onLock(() => new DatabaseSync(file, { timeout: LOOKED_AT })),
      (open) => Effect.sync(() => open.close())
    )
    // Nothing is ever written, so there is no journal to be kept beside it.
    yield* onLock(() => held.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE")).pipe(
      Effect.catchIf(isBusy, () =>
        Effect.flatMap(readPid(pidFile), (pid) => Effect.fail(new DirectoryInUse({ directory, key, ...pid })))
      )
    )
    yield* replaceFile(pidFile, Buffer.from(`${process.pid}\n`), 0o600)
  }).pipe(Effect.mapError((error) => (error instanceof DirectoryInUse ? error : unusable(own, error))))

/** Whether a daemon holds the directory at this moment. Fails where the lock may not be looked at. */
export const isHeld = (own: OwnDirectory): Effect.Effect<boolean, LockUnusable> =>
  Effect.gen(function* () {
    // Where no daemon has ever run there is no lock to be held.
    if ((yield* identityOf(own)) === undefined) return false
    const lock = yield* Effect.acquireRelease(
      onLock(() => new DatabaseSync(lockFile(own), { readOnly: true, timeout: 0 })),
      (open) => Effect.sync(() => open.close())
    )
    return yield* onLock(() => lock.exec("SELECT name FROM sqlite_schema")).pipe(
      Effect.as(false),
      Effect.catchIf(isBusy, () => Effect.succeed(true))
    )
  }).pipe(
    Effect.scoped,
    Effect.mapError((error) => unusable(own, error))
  )

/**
 * Tells the lock that lies in the directory now from any other; undefined when none does. The file is not opened: closing
 * it would end the lock that this process has on it.
 */
export const identityOf = (own: OwnDirectory): Effect.Effect<string | undefined, FileProblem> => {
  const file = lockFile(own)
  return Effect.map(ifPresent(onFile(file, () => fs.stat(file))), (found) =>
    found === undefined ? undefined : `${found.dev} ${found.ino}`
  )
}

const unusable = ({ key, path: directory }: OwnDirectory, { message }: { readonly message: string }) =>
  new LockUnusable({ directory, key, reason: message })

const onLock = <A>(run: () => A): Effect.Effect<A, LockError> =>
  Effect.try({ try: run, catch: (cause) => new LockError({ cause }) })

class LockError extends Schema.TaggedError<LockError>()("LockError", { cause: Schema.Defect() }) {
  override get message() {
    return this.cause instanceof Error ? this.cause.message : String(this.cause)
  }
}

/** SQLITE_BUSY: another process has the lock. */
const isBusy = ({ cause }: LockError | FileProblem): boolean =>
  cause instanceof Error && "errcode" in cause && cause.errcode === 5

/** The pid is only a help; without it the sentence still says what is wrong. */
const readPid = (file: string): Effect.Effect<{ readonly pid?: number }> =>
  onFile(file, () => fs.readFile(file, "utf8")).pipe(
    Effect.map(Number),
    Effect.map((pid) => (Number.isInteger(pid) && pid > 0 ? { pid } : {})),
    Effect.orElseSucceed(() => ({}))
  )
