/** Starting QEMU so that it outlives the daemon. */
import { type ChildProcess, spawn } from "node:child_process"
import { Deferred, Effect } from "effect"
import { makeTail, type Tail } from "./console.ts"
import { notInstalled } from "./explain.ts"
import { identify, type ProcessIdentity } from "./process.ts"

/** How a child ended: by itself with a code, or by a signal. */
export interface ChildEnd {
  readonly code: number | null
  readonly signal: string | null
}

/** A QEMU that this daemon has started. */
export interface Child {
  /** None when it had ended before it could be looked at. */
  readonly process: ProcessIdentity | undefined
  /** Done when it has ended and everything that it wrote is in `stderr`. */
  readonly ended: Deferred.Deferred<ChildEnd>
  readonly stderr: Tail
}

const STDERR_BYTES = 4096

/**
 * Starts the program in a session of its own, with nothing of the daemon's environment but PATH: it holds secrets.
 * What it writes on stderr is read through a pipe, of which the end is kept: a guest may provoke warnings for ever, and
 * a file would grow with them. When the daemon has died the pipe has no reader, which QEMU bears: it ignores SIGPIPE.
 *
 * Fails with the reason when the program cannot be run.
 */
export const spawnQemu = (binary: string, args: ReadonlyArray<string>): Effect.Effect<Child, string> =>
  Effect.gen(function* () {
    const child = yield* Effect.try({
      try: () =>
        spawn(binary, args, {
          cwd: "/",
          detached: true,
          stdio: ["ignore", "ignore", "pipe"],
          env: { PATH: process.env.PATH ?? "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" }
        }),
      // what fork itself fails of, for instance that the host has no memory left
      catch: (error) => `${binary} cannot be run: ${error instanceof Error ? error.message : String(error)}`
    })
    const ended = Deferred.makeUnsafe<ChildEnd>()
    child.on("close", (code, signal) => {
      Deferred.doneUnsafe(ended, Effect.succeed({ code, signal }))
    })
    if (child.pid === undefined) return yield* whyNotStarted(binary, child)

    const stderr = makeTail(STDERR_BYTES)
    child.on("error", () => undefined)
    child.stderr.on("error", () => undefined)
    child.stderr.on("data", stderr.add)
    letGo(child)
    return { process: identify(child.pid), ended, stderr }
  })

/** Without a pid there is an error to come; the pipes may be missing, when there were no descriptors left for them. */
const whyNotStarted = (binary: string, child: ChildProcess): Effect.Effect<never, string> =>
  Effect.callback((resume) => {
    child.once("error", (error: NodeJS.ErrnoException) => {
      resume(
        Effect.fail(
          error.code === "ENOENT" ? notInstalled(binary) : `${binary} cannot be run: ${error.message}`
        )
      )
    })
  })

/** A child does not keep the daemon from ending, and neither does the pipe to it. */
const letGo = (child: ChildProcess) => {
  child.unref()
  const { stderr } = child
  if (stderr !== null && "unref" in stderr && typeof stderr.unref === "function") stderr.unref()
}
