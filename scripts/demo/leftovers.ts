/** The microVMs of a host's folder that a daemon left behind when it could not end them itself. */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import type { Effect } from "effect"
import type { LocalHost } from "../local/host.ts"
import { attempt, type Problem } from "../local/problem.ts"

const commandLine = (pid: string): string => {
  try {
    return readFileSync(join("/proc", pid, "cmdline"), "utf8")
  } catch {
    return "" // it ended while we looked
  }
}

/** Ends them, found by the host's runtime folder in their command line, and tells which they were. */
export const endLeftovers = (host: LocalHost): Effect.Effect<ReadonlyArray<number>, Problem> =>
  attempt("what is left of the host cannot be ended", () => {
    const left = readdirSync("/proc")
      .filter((name) => /^\d+$/u.test(name) && commandLine(name).includes(`${host.runtime}/`))
      .map(Number)
      .filter((pid) => pid !== process.pid)
    for (const pid of left) process.kill(pid, "SIGKILL")
    return left
  })
