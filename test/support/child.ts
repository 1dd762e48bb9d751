/** Scripts of the tests that run in a process of their own, to be killed. */
import { type ChildProcess, spawn } from "node:child_process"
import * as fs from "node:fs/promises"
import { Effect } from "effect"

/** Starts a TypeScript file with this very Node; killed with the scope if it still runs. Its stderr is the test's. */
export const startScript = (script: URL, args: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      spawn(process.execPath, [script.pathname, ...args], { stdio: ["ignore", "pipe", "inherit"] })
    ),
    (child) => killed(child)
  )

/** Kills the process (SIGKILL) and waits until it is gone. */
export const killed = (child: ChildProcess): Effect.Effect<void> =>
  Effect.callback((resume) => {
    if (child.exitCode !== null || child.signalCode !== null) return resume(Effect.void)
    child.once("exit", () => resume(Effect.void))
    child.kill("SIGKILL")
  })

/** Succeeds when the process has written this line, with all lines up to it. */
export const untilLine = (
  child: ChildProcess,
  wanted: (line: string) => boolean
): Effect.Effect<ReadonlyArray<string>> =>
  Effect.callback((resume) => {
    let text = ""
    child.stdout?.on("data", (piece: Buffer) => {
      text += piece.toString()
      const lines = text.split("\n").slice(0, -1)
      if (lines.some(wanted)) resume(Effect.succeed(lines))
    })
    child.once("exit", (code) =>
      resume(Effect.die(new Error(`the script ended with ${code} before the line: ${text}`)))
    )
  })

/** Whether the process still runs; one that has ended and waits for its parent does not. */
export const isRunning = (pid: number): Effect.Effect<boolean> =>
  Effect.promise(() => fs.readFile(`/proc/${pid}/stat`, "utf8").catch(() => "")).pipe(
    Effect.map((stat) => stat !== "" && !/\) [ZX] /u.test(stat))
  )
