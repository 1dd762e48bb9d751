/** Programs that are not ours, as a test runs them. */
import { spawn, spawnSync } from "node:child_process"
import { it } from "@effect/vitest"
import { Effect } from "effect"

export interface Ran {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs a program to its end. */
export const run = (
  command: string,
  args: ReadonlyArray<string>,
  input: Buffer | string = ""
): Effect.Effect<Ran> =>
  Effect.callback<Ran>((resume) => {
    const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"] })
    let [stdout, stderr] = ["", ""]
    child.stdout.setEncoding("latin1").on("data", (text: string) => {
      stdout += text
    })
    child.stderr.setEncoding("latin1").on("data", (text: string) => {
      stderr += text
    })
    child.on("error", (error) => resume(Effect.die(error)))
    child.on("close", (code) => resume(Effect.succeed({ code, stdout, stderr })))
    child.stdin.on("error", () => undefined)
    child.stdin.end(input)
    return Effect.sync(() => child.kill("SIGKILL"))
  })

const has = (command: string) => spawnSync(command, ["--version"]).error === undefined
/** A test that is left out where the program is not there. */
export const withTool = (command: string) => it.live.skipIf(!has(command))
