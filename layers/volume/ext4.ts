/** ext4 filesystems, made in files by `mke2fs`: nothing of a volume's is ever mounted here. */
import * as fs from "node:fs/promises"
import { Effect } from "effect"
import { onFile } from "../files/problem.ts"
import { runTool } from "../files/tool.ts"

/** A directory that becomes the filesystem's root. */
export interface Tree {
  /** Absolute. */
  readonly directory: string
  /** Absolute, in `directory`: given to uid and gid 65534 with all that is in it. Everything else becomes root's. */
  readonly owned: string
}

export interface Ext4Options {
  /** A regular file that exists. All that it holds is lost. */
  readonly path: string
  /** Bytes. */
  readonly sizeBytes: number
  /** A random one where none is given. */
  readonly uuid?: string
  readonly tree?: Tree
}

/**
 * Makes the file a hole of `sizeBytes` with a new ext4 on it, which holds the tree or nothing. The caller flushes
 * it. Owners are those that the tree's files have when this runs as root, else those that `fakeroot` makes of it.
 */
export const formatExt4 = (options: Ext4Options) =>
  onFile(options.path, () => fs.truncate(options.path, 0)).pipe(
    Effect.andThen(onFile(options.path, () => fs.truncate(options.path, options.sizeBytes))),
    Effect.andThen(mke2fs(options))
  )

const mke2fs = ({ path, uuid = "random", tree }: Ext4Options) => {
  const format = [...FORMAT, "-U", uuid]
  if (tree === undefined) return runTool("mke2fs", [...format, path])
  const filled = [...format, "-d", tree.directory, path]
  return process.getuid?.() === 0
    ? runTool("mke2fs", filled, { limit: FILL_LIMIT })
    : runTool("fakeroot", ["sh", "-c", AS_OWNER, tree.owned, ...filled], { limit: FILL_LIMIT })
}

/** `fakeroot` takes every file for root's that it was not told about. */
const AS_OWNER = 'chown -hR 65534:65534 "$0" && exec mke2fs "$@"'

/** Four gibibytes of small files, on a disk that does 2 MiB a second. */
const FILL_LIMIT = "40 minutes"

/**
 * 4 KiB blocks whatever the size, since a volume may grow; all blocks for the app. The file is a hole, so inode
 * tables and journal are zero already: with `assume_storage_prezeroed` they are neither written now nor by the
 * guest's kernel later, and the file stays sparse.
 */
const FORMAT = [
  ...["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0"],
  ...["-E", "root_owner=0:0,nodiscard,assume_storage_prezeroed=1"]
]
