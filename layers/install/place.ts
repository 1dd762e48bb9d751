/** Where a host is laid out: on this machine, or below a directory. */
import { join } from "node:path"

export interface Place {
  /** Empty for this machine; else the absolute directory that stands for its root. */
  readonly root: string
  /** Whether it is this machine: then its kernel, its accounts and its systemd are told too. */
  readonly live: boolean
}

/** Where a path of the host is. */
export const placed = ({ root }: Place, path: string): string => (root === "" ? path : join(root, path))

/** Directories of programs, beside those of PATH. */
const SYSTEM_PATH = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]

/** Where the host's programs are looked for. */
export const programDirectories = (place: Place): ReadonlyArray<string> =>
  place.live
    ? [
        ...(process.env.PATH ?? "").split(":").filter((directory) => directory.startsWith("/")),
        ...SYSTEM_PATH
      ]
    : SYSTEM_PATH.map((directory) => placed(place, directory))
