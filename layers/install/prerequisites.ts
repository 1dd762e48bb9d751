/** What this host lacks before it can run its configuration. */
import { accessSync, constants, existsSync } from "node:fs"
import { join } from "node:path"
import type { HostConfig } from "../../src/config/schema.ts"
import { neededPrograms } from "../../src/install/prerequisites.ts"
import { type Place, placed, programDirectories } from "./place.ts"

const executable = (path: string): boolean => {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** Whether the host has the program. */
const isThere = (place: Place, program: string): boolean =>
  program.startsWith("/")
    ? executable(placed(place, program))
    : programDirectories(place).some((directory) => executable(join(directory, program)))

/** Everything that is missing, each as a sentence with its remedy. */
export const missingPrerequisites = (place: Place, config: HostConfig): ReadonlyArray<string> => [
  ...neededPrograms(config)
    .filter(({ program }) => !isThere(place, program))
    .map(({ program, remedy, why }) => `${program} is missing: ${why}; ${remedy}`),
  ...(config.hypervisor?.backend === "firecracker"
    ? ["hypervisor.backend is firecracker, which this version does not support: use qemu"]
    : [])
]

/** Whether guests run on the processor itself. */
export const hasKvm = (place: Place): boolean => existsSync(placed(place, "/dev/kvm"))
