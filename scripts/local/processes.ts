/** Processes of this machine, as /proc shows them. */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"

/** A file of the process's; empty when it has ended, or is not to be looked at. */
export const ofProcess = (pid: number, file: string): string => {
  try {
    return readFileSync(join("/proc", String(pid), file), "utf8")
  } catch {
    return "" // it ended while we looked
  }
}

/** Other processes than this one that have the text in their command line. */
export const processesWith = (text: string): ReadonlyArray<number> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .map(Number)
    .filter((pid) => pid !== process.pid && ofProcess(pid, "cmdline").includes(text))
