/** The locks that useradd(8) and its like take before they change a file of accounts: `FILE.lock`, with a pid in it. */
import * as fs from "node:fs/promises"
import { Effect, Schedule, type Scope } from "effect"
import { FileProblem, ifPresent, onFile } from "../files/problem.ts"

/** Who holds one has it for a moment. */
const ATTEMPTS = 50
const EVERY = "200 millis"

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM"
  }
}

/** A lock whose holder has died is nobody's. */
const removeStale = (lock: string): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    const holder = yield* ifPresent(onFile(lock, () => fs.readFile(lock, "utf8")))
    // shadow ends the number with a NUL
    const pid = Number.parseInt(holder ?? "", 10)
    if (pid > 0 && !isAlive(pid)) yield* onFile(lock, () => fs.rm(lock, { force: true }))
  })

const take = (file: string): Effect.Effect<void, FileProblem> => {
  const lock = `${file}.lock`
  const own = `${file}.${process.pid}`
  return Effect.gen(function* () {
    yield* onFile(own, () => fs.writeFile(own, `${process.pid}\0`, { mode: 0o600 }))
    yield* onFile(lock, () => fs.link(own, lock)).pipe(
      Effect.tapError((problem) => (problem.code === "EEXIST" ? removeStale(lock) : Effect.void)),
      Effect.retry({
        schedule: Schedule.max([Schedule.spaced(EVERY), Schedule.recurs(ATTEMPTS)]),
        while: (problem) => problem.code === "EEXIST"
      }),
      Effect.catchIf(
        (problem) => problem.code === "EEXIST",
        () =>
          Effect.fail(
            new FileProblem({
              path: lock,
              code: "EEXIST",
              reason: `another program is changing ${file}: it holds ${lock}`
            })
          )
      )
    )
  }).pipe(Effect.ensuring(Effect.ignore(onFile(own, () => fs.rm(own, { force: true })))))
}

/** Holds the file for as long as the scope lasts. Its directory is there. */
export const lockAccounts = (file: string): Effect.Effect<void, FileProblem, Scope.Scope> =>
  Effect.acquireRelease(take(file), () =>
    Effect.ignore(onFile(file, () => fs.rm(`${file}.lock`, { force: true })))
  )
