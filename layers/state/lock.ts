/** One daemon per state directory. */
import { readFileSync, writeFileSync } from "node:fs"
import * as path from "node:path"
import { DatabaseSync } from "node:sqlite"
import { Effect, Schema, type Scope } from "effect"
import { makeDirectory } from "../files/durable.ts"
import type { FileProblem } from "../files/problem.ts"

/** Another daemon runs on this state directory. */
export class StateDirectoryInUse extends Schema.TaggedError<StateDirectoryInUse>()("StateDirectoryInUse", {
  stateDir: Schema.String,
  pid: Schema.optionalKey(Schema.Int),
  reason: Schema.String
}) {
  override get message() {
    const who = this.pid === undefined ? "another daemon" : `the daemon with pid ${this.pid}`
    return `${who} is using ${this.stateDir} (paths.state_dir); two daemons must not share it: ${this.reason}`
  }
}

/**
 * Holds the state directory for as long as the scope lasts; fails at once when another process holds it. The
 * lock is the kernel's (SQLite's, on an empty database; Node has no flock): it ends with the process however
 * that ends, so no lock is ever left behind. The pid lies beside it for the sentence only.
 */
export const lockStateDirectory = (
  stateDir: string
): Effect.Effect<void, StateDirectoryInUse | FileProblem, Scope.Scope> =>
  Effect.gen(function* () {
    const directory = path.join(stateDir, "state")
    yield* makeDirectory(directory, 0o700)
    const pidFile = path.join(directory, "daemon.pid")
    yield* Effect.acquireRelease(
      Effect.try({
        try: () => takeLock(path.join(directory, "daemon.lock")),
        catch: (error) =>
          new StateDirectoryInUse({
            stateDir,
            ...readPid(pidFile),
            reason: error instanceof Error ? error.message : String(error)
          })
      }),
      (lock) => Effect.sync(() => lock.close())
    )
    yield* Effect.sync(() => writeFileSync(pidFile, `${process.pid}\n`, { mode: 0o600 }))
  })

const takeLock = (file: string): DatabaseSync => {
  const lock = new DatabaseSync(file, { timeout: 0 })
  try {
    lock.exec("BEGIN EXCLUSIVE")
    return lock
  } catch (error) {
    lock.close()
    throw error
  }
}

const readPid = (file: string): { readonly pid?: number } => {
  try {
    const pid = Number(readFileSync(file, "utf8"))
    return Number.isInteger(pid) && pid > 0 ? { pid } : {}
  } catch {
    // The pid is only a help; without it the sentence still says what is wrong.
    return {}
  }
}
