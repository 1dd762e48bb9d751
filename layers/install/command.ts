/** Programs of the host that `install` and `start` call. */
import { Effect } from "effect"
import { ChildProcess, ChildProcessSpawner } from "effect/process"
import { lastOf } from "../files/tool.ts"

/** How a program ended. */
export interface Ended {
  /** Undefined: it was stopped, because it took too long. */
  readonly code: number | undefined
  readonly stdout: string
  /** The first line that it said, and the last. */
  readonly firstWord: string
  readonly lastWord: string
}

/** The most that is kept of what a program says. Characters. */
const KEPT = 65_536
const SILENT = "it said nothing"

const wordsOf = (said: string) => {
  const lines = said
    .split(/[\r\n]+/u)
    .map((line) => line.trim().slice(0, 300))
    .filter((line) => line !== "")
  return { firstWord: lines[0] ?? SILENT, lastWord: lines.at(-1) ?? SILENT }
}

/**
 * Runs a program to its end. It gets nothing of the environment but PATH. Fails with a clause only where it cannot be run.
 *
 * @param limitSeconds after which it is stopped
 */
export const runProgram = (
  program: string,
  args: ReadonlyArray<string>,
  limitSeconds: number
): Effect.Effect<Ended, { readonly reason: string }, ChildProcessSpawner.ChildProcessSpawner> =>
  Effect.gen(function* () {
    const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
    const child = yield* spawner.spawn(
      ChildProcess.make(program, args, {
        stdin: "ignore",
        env: { LC_ALL: "C", PATH: `${process.env.PATH ?? ""}:/usr/sbin:/usr/bin:/sbin:/bin` },
        forceKillAfter: "2 seconds"
      })
    )
    const [stdout, stderr] = yield* Effect.all([lastOf(child.stdout, KEPT), lastOf(child.stderr, KEPT)], {
      concurrency: "unbounded"
    })
    const code: number = yield* child.exitCode
    return { code, stdout, ...wordsOf(stderr === "" ? stdout : stderr) }
  }).pipe(
    Effect.scoped,
    Effect.catchTag("PlatformError", (error) =>
      Effect.fail({
        reason:
          error.reason._tag === "NotFound"
            ? `${program} is not installed`
            : `${program} could not be run: ${error.message}`
      })
    ),
    Effect.timeoutOrElse({
      duration: limitSeconds * 1000,
      orElse: () => {
        const word = `it did not end within ${limitSeconds} s`
        return Effect.succeed<Ended>({ code: undefined, stdout: "", firstWord: word, lastWord: word })
      }
    })
  )
