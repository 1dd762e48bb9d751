/** Files that a VMM opens as the user that it runs as, which is not the daemon's. */
import { chmodSync, chownSync, lstatSync, statSync } from "node:fs"
import type { VmmIdentity } from "../../../../src/hypervisor/identity.ts"

const PRIVATE = 0o600
const READABLE = 0o444

/** Makes a file the VMM's own: nobody else but root opens it. Throws what the system says, or that it is no file. */
export const giveTo = (path: string, { uid, gid }: VmmIdentity): void => {
  const { uid: owner, gid: group, mode } = plainFile(path)
  if (owner !== uid || group !== gid) chownSync(path, uid, gid)
  if ((mode & 0o777) !== PRIVATE) chmodSync(path, PRIVATE)
}

/** Makes a file root's again, if it is still that VMM's. No error when it is gone. */
export const takeBack = (path: string, { uid }: VmmIdentity): void => {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (found?.isFile() && found.uid === uid) chownSync(path, 0, 0)
}

/** Lets every VMM that is shown the file read it. It is not to be reached otherwise: its directory is the daemon's alone. */
export const letRead = (path: string): void => {
  const { mode } = statSync(path)
  if ((mode & READABLE) !== READABLE) chmodSync(path, (mode & 0o777) | READABLE)
}

const plainFile = (path: string) => {
  const found = lstatSync(path)
  if (found.isFile()) return found
  throw new Error("it is no plain file")
}
