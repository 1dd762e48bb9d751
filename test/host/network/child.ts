/** Child processes of tests that are spoken with line by line. */
import { type ChildProcess, spawn } from "node:child_process"
import { createInterface } from "node:readline"
import { Effect, Queue, type Scope } from "effect"

export interface LineChild {
  readonly process: ChildProcess
  readonly lines: Queue.Queue<string>
  readonly write: (line: string) => void
}

/** Runs a program for as long as the scope lasts; what it says on standard error goes where the test's goes. */
export const lineChild = (
  program: string,
  args: ReadonlyArray<string>
): Effect.Effect<LineChild, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.gen(function* () {
      const lines = yield* Queue.unbounded<string>()
      const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] })
      createInterface({ input: child.stdout }).on("line", (line) => Queue.offerUnsafe(lines, line))
      return { process: child, lines, write: (line: string) => void child.stdin.write(`${line}\n`) }
    }),
    ({ process: child }) =>
      Effect.callback<void>((resume) => {
        if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
        child.once("exit", () => resume(Effect.void))
        child.kill("SIGKILL")
      })
  )
