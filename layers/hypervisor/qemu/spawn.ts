/** Starting QEMU so that it outlives the daemon. */
import { spawn } from "node:child_process"
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
  Effect.suspend(() => {
    const ended = Deferred.makeUnsafe<ChildEnd>()
    const stderr = makeTail(STDERR_BYTES)
    const child = spawn(binary, args, {
      cwd: "/",
      detached: true,
      stdio: ["ignore", "ignore", "pipe"],
      env: { PATH: process.env.PATH ?? "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" }
    })
    child.stderr.on("data", stderr.add)
    child.on("close", (code, signal) => {
      Deferred.doneUnsafe(ended, Effect.succeed({ code, signal }))
    })
    child.unref()
    if ("unref" in child.stderr && typeof child.stderr.unref === "function") child.stderr.unref()

    const pid = child.pid
    if (pid !== undefined) {
      child.on("error", () => undefined)
      return Effect.succeed({ process: identify(pid), ended, stderr })
    }
    return Effect.callback<never, string>((resume) => {
      child.once("error", (error: NodeJS.ErrnoException) => {
        resume(
          Effect.fail(
            error.code === "ENOENT" ? notInstalled(binary) : `${binary} cannot be run: ${error.message}`
          )
        )
      })
    })
  })
