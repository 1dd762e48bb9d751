/** Whether a program is there to be run. */
import { accessSync, constants } from "node:fs"

/** Whether this process may run the file. */
export const isExecutable = (path: string): boolean => {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
