/** Starting a VMM so that it outlives the daemon. */
import { type ChildProcess, spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import type { Writable } from "node:stream"
import { Deferred, Effect } from "effect"
import { makeTail, type Tail } from "./console.ts"
import { identify, type ProcessIdentity } from "./process.ts"

/** How a child ended: by itself with a code, or by a signal. */
export interface ChildEnd {
  readonly code: number | null
  readonly signal: string | null
}

/** A VMM that this daemon has started. */
export interface Child {
  /** None when it had ended before it could be looked at. */
  readonly process: ProcessIdentity | undefined
  /** Done when it has ended and everything that it wrote is in `stderr`. */
  readonly ended: Deferred.Deferred<ChildEnd>
  readonly stderr: Tail
  /** Its standard input, where one was asked for. It may close at any time, without an error. */
  readonly stdin: Writable | undefined
}

const STDERR_BYTES = 4096

/**
 * Starts the program in a session of its own, with nothing of the daemon's environment but PATH: it holds secrets.
 * What it writes on stderr is read through a pipe, of which the end is kept: a guest may provoke warnings for ever, and
 * a file would grow with them. When the daemon has died the pipe has no reader, which QEMU bears: it ignores SIGPIPE.
 *
 * Fails with the reason when the program cannot be run.
 */
export const spawnVmm = (
  program: string,
  args: ReadonlyArray<string>,
  options: { readonly stdin: boolean } = { stdin: false }
): Effect.Effect<Child, string> =>
  Effect.gen(function* () {
    const child = yield* Effect.try({
      try: () =>
        spawn(program, args, {
          cwd: "/",
          detached: true,
          stdio: [options.stdin ? "pipe" : "ignore", "ignore", "pipe"],
          env: { PATH: process.env.PATH ?? "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" }
        }),
      // what fork itself fails of, for instance that the host has no memory left
      catch: (error) => `${program} cannot be run: ${error instanceof Error ? error.message : String(error)}`
    })
    const ended = Deferred.makeUnsafe<ChildEnd>()
    child.on("close", (code, signal) => {
      Deferred.doneUnsafe(ended, Effect.succeed({ code, signal }))
    })
    if (child.pid === undefined) return yield* whyNotStarted(program, child)

    giveUpFirst(child.pid)
    const stderr = makeTail(STDERR_BYTES)
    child.on("error", () => undefined)
    child.stderr?.on("error", () => undefined)
    child.stderr?.on("data", stderr.add)
    child.stdin?.on("error", () => undefined)
    letGo(child)
    return { process: identify(child.pid), ended, stderr, stdin: child.stdin ?? undefined }
  })

/** A daemon may be spared when the host runs out of memory; its microVMs are not. */
const giveUpFirst = (pid: number) => {
  try {
    writeFileSync(`/proc/${pid}/oom_score_adj`, "0")
  } catch {
    // It has ended; or the daemon is not root, and is not spared itself.
  }
}

/** Without a pid there is an error to come; the pipes may be missing, when there were no descriptors left for them. */
const whyNotStarted = (program: string, child: ChildProcess): Effect.Effect<never, string> =>
  Effect.callback((resume) => {
    child.once("error", (error: NodeJS.ErrnoException) => {
      const reason = error.code === "ENOENT" ? "it is not there" : error.message
      resume(Effect.fail(`${program} cannot be run: ${reason}`))
    })
  })

/** A child does not keep the daemon from ending, and neither do the pipes to it. */
const letGo = (child: ChildProcess) => {
  child.unref()
  for (const pipe of [child.stdin, child.stderr]) {
    if (pipe !== null && "unref" in pipe && typeof pipe.unref === "function") pipe.unref()
  }
}
