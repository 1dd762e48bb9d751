/** One daemon per network namespace. */
import { mkdirSync, statSync } from "node:fs"
import { DatabaseSync } from "node:sqlite"
import { Effect, type Scope } from "effect"
import { NetworkError } from "../../../src/services/Network.ts"

/** Root's alone: whoever could open the lock could keep a daemon from starting. */
const DIRECTORY = "/run/nibrunner-taps"

const isBusy = (error: unknown): boolean =>
  error instanceof Error && "errcode" in error && (Number(error.errcode) & 0xff) === 5

/**
 * Taps and rules are the machine's, named by slot: two daemons would take them from each other. Holds those of the network
 * namespace that this process is in, for as long as the scope lasts; the lock is the kernel's (SQLite's, on a file that
 * nothing is ever written to) and ends with the process, however that ends.
 */
export const holdNetwork: Effect.Effect<void, NetworkError, Scope.Scope> = Effect.acquireRelease(
  Effect.try({
    try: () => {
      mkdirSync(DIRECTORY, { recursive: true, mode: 0o700 })
      const lock = new DatabaseSync(`${DIRECTORY}/${statSync("/proc/self/ns/net").ino}.lock`, { timeout: 0 })
      try {
        lock.exec("PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE")
        return lock
      } catch (error) {
        lock.close()
        throw error
      }
    },
    catch: (error) =>
      new NetworkError({
        reason: isBusy(error)
          ? 'another nibrunner on this machine has the taps; with hypervisor.network = "user" two can run'
          : `${DIRECTORY} cannot be used: ${error instanceof Error ? error.message : error}`
      })
  }),
  (lock) => Effect.sync(() => lock.close())
)
