/**
 * Lays entries out in a directory that nobody else writes to, and counts what they will take on the volume.
 *
 * No part of a path is followed as a symbolic link: each directory on the way is looked at before something is made
 * in it, and what is made is made anew, never opened. Everything is done in turn, so nothing changes in between.
 */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import { placeEntry, showName } from "../../src/volume/entry-path.ts"
import type { Room } from "../../src/volume/room.ts"
import { DirectoryNotes } from "./directory-notes.ts"
import { Fixes } from "./fixes.ts"
import { type Entry, type OpenFile, Refused, type Sink } from "./sink.ts"

/** Whom everything in the destination belongs to. */
export const OWNER = 65534
const BLOCK = 4096
/** Bytes. What a name takes in a directory besides itself. */
const DIRECTORY_ENTRY = 8
/** Directories that are known to be such; more are looked at again. */
const MOST_KNOWN = 20_000
/** ext4 takes 65,000 names for one inode. */
const MOST_LINKS = 60_000
const NEW_FILE = fs.constants.O_WRONLY | fs.constants.O_CREAT | fs.constants.O_EXCL | fs.constants.O_NOFOLLOW

export interface StagingOptions {
  /** Absolute: an empty directory of the daemon's own. */
  readonly workspace: string
  /** Absolute, as the app sees it. */
  readonly destinationPath: string
  readonly room: Room
}

export interface Staging extends Sink {
  /** Sets what can only be set when all is there. */
  readonly finish: () => void
}

/** Bytes as a path that Node takes: ASCII as it is, anything else undecoded. */
const asPath = (bytes: string): fs.PathLike =>
  /^[\x00-\x7f]*$/u.test(bytes) ? bytes : Buffer.from(bytes, "latin1")

const asBytes = (text: string): string => Buffer.from(text).toString("latin1")

/** Seconds, within what ext4 can hold. */
const timeOf = ({ mtime }: Entry): number => Math.min(Math.max(mtime, -(2 ** 31)), 2 ** 32 - 1)

const roundUp = (bytes: number): number => Math.ceil(bytes / BLOCK) * BLOCK

const codeOf = (error: unknown): unknown =>
  error instanceof Error && "code" in error ? error.code : undefined

/** The directory in `workspace` that becomes the volume's root. */
export const rootOf = (workspace: string): string => `${workspace}/root`

/** Where the destination lies: overlayfs's upper directory has the paths of the app's root. */
export const destinationIn = (workspace: string, destinationPath: string): string =>
  [rootOf(workspace), "upper", ...partsOf(destinationPath)].join("/")

const partsOf = (path: string): ReadonlyArray<string> =>
  path.split("/").filter((part) => part !== "" && part !== ".")

export const makeStaging = ({ workspace, destinationPath, room }: StagingOptions): Staging => {
  const isRoot = process.getuid?.() === 0
  const destination = asBytes(destinationIn(workspace, destinationPath))
  const base = asBytes(rootOf(workspace))
  const known = new Set<string>()
  const fixes = new Fixes(`${workspace}/fixes`, `${workspace}/values`)
  const notes = new DirectoryNotes(`${workspace}/directories`)
  const used = { bytes: 0, inodes: 0, names: 0 }
  let whiteout: { path: string; links: number } | undefined
  let whiteouts = 0

  const take = (bytes: number, inodes: number) => {
    used.bytes += bytes
    used.inodes += inodes
    if (used.bytes > room.bytes || used.names > room.bytes) {
      throw new Refused(
        `does not fit: it takes more than the ${room.bytes} bytes that the volume has for files`
      )
    }
    if (used.inodes > room.inodes) {
      throw new Refused(
        `does not fit: it has more than the ${room.inodes} files and directories that the volume can hold`
      )
    }
  }

  const named = (name: string) => {
    used.names += DIRECTORY_ENTRY + name.length - name.lastIndexOf("/")
  }

  const at = (path: string): fs.PathLike => asPath(path === "" ? destination : `${destination}/${path}`)
  /** The path on the volume. */
  const onVolume = (path: string): string =>
    path === "" ? destination.slice(base.length) : `${destination.slice(base.length)}/${path}`

  const look = (path: string): fs.Stats | undefined => fs.lstatSync(at(path), { throwIfNoEntry: false })

  const makeDirectory = (path: string) => {
    take(BLOCK, 1)
    named(path)
    fs.mkdirSync(at(path), 0o755)
    if (isRoot) fs.lchownSync(at(path), OWNER, OWNER)
    fs.chmodSync(at(path), 0o755)
  }

  const remember = (path: string) => {
    if (known.size >= MOST_KNOWN) known.clear()
    known.add(path)
  }

  const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf("/")))

  /** Makes sure that the directory that the entry lies in is one, and no symbolic link to one. */
  const enter = (directory: string, entry: Entry): void => {
    if (directory === "" || known.has(directory)) return
    enter(parentOf(directory), entry)
    const there = look(directory)
    if (there === undefined) makeDirectory(directory)
    else if (there.isSymbolicLink()) {
      throw new Refused(
        `leaves the destination: entry ${showName(entry.name)} is written through the symbolic link ${showName(directory)}`
      )
    } else if (!there.isDirectory()) {
      throw new Refused(
        `has an entry ${showName(entry.name)} in ${showName(directory)}, which is not a directory`
      )
    }
    remember(directory)
  }

  /** What is at the path goes: the later entry wins. */
  const remove = (path: string, entry: Entry) => {
    const there = look(path)
    if (there === undefined) return
    fixes.forget(onVolume(path))
    if (there.isDirectory()) {
      known.delete(path)
      try {
        fs.rmdirSync(at(path))
      } catch (error) {
        if (codeOf(error) !== "ENOTEMPTY") throw error
        throw new Refused(
          `has an entry ${showName(entry.name)} in the place of a directory that is not empty`
        )
      }
      return take(-BLOCK, -1)
    }
    fs.unlinkSync(at(path))
    if (there.isCharacterDevice()) return
    if (there.nlink === 1) take(-(there.isFile() ? there.blocks * 512 : 0), -1)
  }

  const anew = <A>(path: string, entry: Entry, make: (place: fs.PathLike) => A): A => {
    if (path === "")
      throw new Refused(`has an entry ${showName(entry.name)} in the place of the destination itself`)
    enter(parentOf(path), entry)
    named(path)
    try {
      return make(at(path))
    } catch (error) {
      if (codeOf(error) !== "EEXIST") throw error
      remove(path, entry)
      return make(at(path))
    }
  }

  /** Without root, what is made here must stay readable to the tool that reads it; the volume gets the true mode. */
  const modeOf = (path: string, mode: number, needed: number, type: number): number => {
    const kept = mode & 0o1777
    if (isRoot || (kept & needed) === needed) return kept
    fixes.setMode(onVolume(path), type | kept)
    return kept | needed
  }

  const attribute = (path: string, entry: Entry, isDirectory: boolean) => {
    for (const [name, value] of entry.attributes ?? []) {
      const isOpaque = name === "trusted.overlay.opaque" && isDirectory && value.toString("latin1") === "y"
      if (isOpaque || name.startsWith("user.")) fixes.setAttribute(onVolume(path), name, value)
    }
  }

  const place = (entry: Entry): string | undefined => {
    const where = placeEntry(entry.name)
    if (where.kind === "refused")
      throw new Refused(`has an entry ${showName(entry.name)} that ${where.reason}`)
    return where.kind === "litter" ? undefined : where.path
  }

  const withPath = (entry: Entry, make: (path: string) => void) => {
    const path = place(entry)
    if (path !== undefined) naming(entry, () => make(path))
  }

  /** A hard link's target as the archive names it: a path like an entry's, of something that is there already. */
  const linked = (entry: Entry, target: string): string => {
    const where = placeEntry(target)
    const link = `has a hard link ${showName(entry.name)} to ${showName(target)}`
    if (where.kind === "refused") throw new Refused(`${link}, which ${where.reason}`)
    if (where.kind === "litter") throw new Refused(`${link}, which is skipped as an archiver's litter`)
    for (let parent = parentOf(where.path); parent !== ""; parent = parentOf(parent)) {
      if (look(parent)?.isSymbolicLink() === true) {
        throw new Refused(
          `${link}, which leaves the destination through the symbolic link ${showName(parent)}`
        )
      }
    }
    const there = look(where.path)
    if (there === undefined) throw new Refused(`${link}, which is not in the archive before it`)
    if (there.isDirectory()) throw new Refused(`${link}, which is a directory`)
    return where.path
  }

  /** All whiteouts are names of one device, as overlayfs makes them too. */
  const whiteoutToLink = (): string => {
    if (whiteout === undefined || whiteout.links >= MOST_LINKS) {
      whiteouts += 1
      take(0, 1)
      const path = `${workspace}/whiteout-${whiteouts}`
      execFileSync("mknod", [path, "c", "0", "0"], { stdio: ["ignore", "ignore", "ignore"] })
      if (isRoot) fs.lchownSync(path, OWNER, OWNER)
      whiteout = { path, links: 0 }
    }
    whiteout.links += 1
    return whiteout.path
  }

  /** The directories above the destination are root's. */
  const layOut = () => {
    let path = base
    fs.mkdirSync(asPath(path), 0o755)
    for (const part of ["upper", ...partsOf(destinationPath)]) {
      path += `/${asBytes(part)}`
      fs.mkdirSync(asPath(path), 0o755)
      fs.chmodSync(asPath(path), 0o755)
      take(BLOCK, 1)
    }
    if (isRoot) fs.lchownSync(asPath(path), OWNER, OWNER)
  }
  layOut()

  return {
    directory: (entry) =>
      withPath(entry, (path) => {
        enter(parentOf(path), entry)
        if (path !== "" && !known.has(path)) {
          if (look(path)?.isDirectory() !== true) {
            remove(path, entry)
            makeDirectory(path)
          }
          remember(path)
        }
        fixes.forget(onVolume(path))
        notes.add(
          `${destination}${path === "" ? "" : `/${path}`}`,
          modeOf(path, entry.mode, 0o700, 0o40000),
          timeOf(entry)
        )
        attribute(path, entry, true)
      }),

    symbolicLink: (entry, target) =>
      withPath(entry, (path) => {
        take(target.length < 60 ? 0 : BLOCK, 1)
        anew(path, entry, (file) => {
          fs.symlinkSync(asPath(target), file)
          if (isRoot) fs.lchownSync(file, OWNER, OWNER)
          fs.lutimesSync(file, timeOf(entry), timeOf(entry))
        })
      }),

    hardLink: (entry, target) =>
      withPath(entry, (path) => {
        const from = linked(entry, target)
        // A name for itself: nothing changes.
        if (from === path) return
        anew(path, entry, (file) => fs.linkSync(at(from), file))
        take(0, 0)
      }),

    characterDevice: (entry, major, minor) =>
      withPath(entry, (path) => {
        if (major !== 0 || minor !== 0) {
          throw new Refused(
            `has a character device ${showName(entry.name)} (${major}, ${minor}); none but overlayfs's whiteouts (0, 0) are unpacked`
          )
        }
        anew(path, entry, (file) => fs.linkSync(whiteoutToLink(), file))
      }),

    other: (entry, kind) =>
      withPath(entry, () => {
        throw new Refused(`has an entry ${showName(entry.name)} that is ${kind}`)
      }),

    file: (entry, size, stored) => {
      const path = place(entry)
      if (path === undefined) return undefined
      return naming(entry, () => {
        // What it replaces is taken off before it is counted.
        const file = anew(path, entry, (name) => fs.openSync(name, NEW_FILE, 0o600))
        take(roundUp(stored), 1)
        return fill(file, entry, path, size, stored)
      })
    },

    finish: () => {
      notes.apply((path, mode, mtime) => {
        if (fs.lstatSync(asPath(path), { throwIfNoEntry: false })?.isDirectory() !== true) return
        fs.utimesSync(asPath(path), mtime, mtime)
        fs.chmodSync(asPath(path), mode)
      })
      fixes.write()
    }
  }

  function fill(file: number, entry: Entry, path: string, size: number, stored: number): OpenFile {
    return {
      write: (bytes, position) =>
        naming(entry, () => {
          for (let done = 0; done < bytes.length; ) {
            done += fs.writeSync(file, bytes, done, bytes.length - done, position + done)
          }
        }),
      close: () =>
        naming(entry, () => {
          if (size !== stored) fs.ftruncateSync(file, size)
          if (isRoot) fs.fchownSync(file, OWNER, OWNER)
          fs.fchmodSync(file, modeOf(path, entry.mode, 0o600, 0o100000))
          fs.futimesSync(file, timeOf(entry), timeOf(entry))
          fs.closeSync(file)
          attribute(path, entry, false)
        })
    }
  }
}

const PROBLEMS: Readonly<Record<string, string>> = {
  ENOSPC: "cannot be laid out: the disk that holds the host's initial-contents directory is full",
  EDQUOT:
    "cannot be laid out: the quota of the disk that holds the host's initial-contents directory is used up"
}

const REASONS: Readonly<Record<string, string>> = {
  ENAMETOOLONG: "its path is too long",
  EFBIG: "it is larger than the host's filesystem allows",
  EMLINK: "it is one link too many to the same file",
  ENOENT: "it is a symbolic link to nothing, or a tool is missing"
}

/** Names the entry at which the system refused something. */
const naming = <A>(entry: Entry, make: () => A): A => {
  try {
    return make()
  } catch (error) {
    if (error instanceof Refused) throw error
    const code = String(codeOf(error))
    const whole = PROBLEMS[code]
    if (whole !== undefined) throw new Refused(whole)
    const reason = REASONS[code] ?? (error instanceof Error ? error.message.split(",")[0] : String(error))
    throw new Refused(`has an entry ${showName(entry.name)} that cannot be laid out: ${reason}`)
  }
}
