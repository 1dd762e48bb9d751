/** The microVMs of a host's folder that a daemon left behind when it could not end them itself. */
import type { Effect } from "effect"
import type { LocalHost } from "../local/host.ts"
import { attempt, type Problem } from "../local/problem.ts"
import { processesWith } from "../local/processes.ts"

/** Ends them, found by the host's runtime folder in their command line, and tells which they were. */
export const endLeftovers = (host: LocalHost): Effect.Effect<ReadonlyArray<number>, Problem> =>
  attempt("what is left of the host cannot be ended", () => {
    const left = processesWith(`${host.runtime}/`)
    for (const pid of left) process.kill(pid, "SIGKILL")
    return left
  })
