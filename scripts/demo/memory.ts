/** What a host's microVMs hold of the machine's memory, and its snapshots of the disk. */
import { readdirSync, statSync } from "node:fs"
import { join } from "node:path"
import type { Effect } from "effect"
import type { LocalHost } from "../local/host.ts"
import { attempt, type Problem } from "../local/problem.ts"
import { ofProcess, processesWith } from "../local/processes.ts"

const MIB = 2 ** 20

/** Resident memory of the host's VMMs, in whole MiB: 0 when none runs. */
export const vmmMemory = (host: LocalHost): Effect.Effect<number, Problem> =>
  attempt("the memory of the microVMs cannot be told", () => {
    const kib = processesWith(`@${host.runtime}/vm/`).map((pid) =>
      Number(/^VmRSS:\s+(\d+) kB$/mu.exec(ofProcess(pid, "status"))?.[1] ?? 0)
    )
    return Math.round((kib.reduce((sum, each) => sum + each, 0) * 1024) / MIB)
  })

/** What the app's snapshot takes on the disk, in whole MiB. */
export const snapshotSize = (host: LocalHost, appId: string): Effect.Effect<number, Problem> =>
  attempt("the snapshot cannot be found", () => {
    const folder = join(host.snapshots, appId)
    const blocks = readdirSync(folder).map((name) => statSync(join(folder, name)).blocks)
    return Math.ceil((blocks.reduce((sum, each) => sum + each, 0) * 512) / MIB)
  })
