/** How many file descriptors the daemon may have open. */
import { readFileSync } from "node:fs"

/** What every Linux allows, for where the limit cannot be read. */
const USUAL = 1_024

/** Node has raised the soft limit to the hard one by the time that it runs anything (RLIMIT_NOFILE). */
export const fileLimit = (): number => {
  const said = /^Max open files +(\d+|unlimited)/mu.exec(readLimits())?.[1]
  if (said === "unlimited") return Number.POSITIVE_INFINITY
  return said === undefined ? USUAL : Number(said)
}

const readLimits = (): string => {
  try {
    return readFileSync("/proc/self/limits", "latin1")
  } catch {
    return ""
  }
}
