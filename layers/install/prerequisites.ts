/** What this host lacks before it can run its configuration. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import type { HostConfig } from "../../src/config/schema.ts"
import { neededPrograms } from "../../src/install/prerequisites.ts"
import { isExecutable } from "../files/executable.ts"
import { type Place, placed, programDirectories } from "./place.ts"

/** Whether the host has the program. */
const isThere = (place: Place, program: string): boolean =>
  program.startsWith("/")
    ? isExecutable(placed(place, program))
    : programDirectories(place).some((directory) => isExecutable(join(directory, program)))

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
