/** How a microVM's end reads. */
import type { MachineExit } from "../services/Hypervisor.ts"

/** The beginning of a sentence: how the VMM ended, and what it or its guest said of it. */
export const describeExit = (exit: MachineExit): string => {
  const how =
    exit.kind === "exited"
      ? `the microVM ended with exit code ${exit.code}`
      : exit.kind === "killed"
        ? `the microVM was killed by ${exit.signal}`
        : "the microVM ended"
  return "reason" in exit && exit.reason !== undefined ? `${how}: ${exit.reason}` : how
}
