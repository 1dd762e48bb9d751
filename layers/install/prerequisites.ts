/** The programs that a host has and lacks. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import type { HostConfig } from "../../src/config/schema.ts"
import { type NeededProgram, neededPrograms } from "../../src/install/prerequisites.ts"
import { isExecutable } from "../files/executable.ts"
import { type Place, placed, programDirectories } from "./place.ts"

/** Whether the host has the program. */
const isThere = (place: Place, program: string): boolean =>
  program.startsWith("/")
    ? isExecutable(placed(place, program))
    : programDirectories(place).some((directory) => isExecutable(join(directory, program)))

/** The programs that the configuration needs and the host does not have. */
export const missingPrograms = (place: Place, config: HostConfig): ReadonlyArray<NeededProgram> =>
  neededPrograms(config).filter(({ program }) => !isThere(place, program))

/** Whether guests run on the processor itself. */
export const hasKvm = (place: Place): boolean => existsSync(placed(place, "/dev/kvm"))
