/**
 * Files that are there whole or not at all: written under another name, flushed to the disk, then renamed, and
 * the directory flushed after.
 */
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect, type Scope } from "effect"
import { type FileProblem, ifPresent, onFile } from "./problem.ts"

/** Opens a file for as long as the scope lasts. */
export const openFile = (
  file: string,
  flags: number,
  mode = 0o600
): Effect.Effect<fs.FileHandle, FileProblem, Scope.Scope> =>
  Effect.acquireRelease(
    onFile(file, () => fs.open(file, flags, mode)),
    // What had to reach the disk was flushed before: nothing is lost by a close that fails.
    (handle) => Effect.ignore(onFile(file, () => handle.close()))
  )

/** Writes all of the bytes at the handle's position. */
export const writeAll = (
  file: string,
  handle: fs.FileHandle,
  bytes: Uint8Array
): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    let offset = 0
    while (offset < bytes.length) {
      const { bytesWritten } = yield* onFile(file, () => handle.write(bytes, offset))
      offset += bytesWritten
    }
  })

/** Writes all of these at the handle's position, as few calls as the system allows. */
export const writeAllOf = (
  file: string,
  handle: fs.FileHandle,
  pieces: ReadonlyArray<Uint8Array>
): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    const length = pieces.reduce((sum, piece) => sum + piece.byteLength, 0)
    const { bytesWritten } = yield* onFile(file, () => handle.writev(pieces))
    let written = bytesWritten
    if (written === length) return
    for (const piece of pieces) {
      if (written < piece.byteLength) yield* writeAll(file, handle, piece.subarray(written))
      written = Math.max(0, written - piece.byteLength)
    }
  })

/** Flushes a directory: the names that were made, changed or removed in it. */
export const syncDirectory = (directory: string): Effect.Effect<void, FileProblem> =>
  openFile(directory, constants.O_RDONLY | constants.O_DIRECTORY).pipe(
    Effect.flatMap((handle) => onFile(directory, () => handle.sync())),
    Effect.scoped
  )

/** Makes a directory and its parents if need be. One that is there keeps its mode, unless it is to be private. */
export const makeDirectory = (directory: string, mode = 0o755): Effect.Effect<void, FileProblem> =>
  onFile(directory, () => fs.mkdir(directory, { recursive: true, mode })).pipe(
    Effect.andThen(mode === 0o700 ? onFile(directory, () => fs.chmod(directory, mode)) : Effect.void)
  )

/** Gives the file at `temporary` its final name, replacing what has that name. Both are in one directory. */
export const commitFile = (temporary: string, file: string): Effect.Effect<void, FileProblem> =>
  onFile(file, () => fs.rename(temporary, file)).pipe(
    Effect.andThen(syncDirectory(path.dirname(file))),
    Effect.uninterruptible
  )

/** Removes a file; no error when there is none. */
export const removeFile = (file: string): Effect.Effect<void, FileProblem> =>
  onFile(file, () => fs.rm(file, { force: true }))

/** Replaces a file as a whole. One writer at a time: the temporary name is the same each time, so a crash leaves at most one. */
export const replaceFile = (
  file: string,
  bytes: Uint8Array,
  mode: number
): Effect.Effect<void, FileProblem> => {
  const temporary = path.join(path.dirname(file), `.${path.basename(file)}.new`)
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW
  return openFile(temporary, flags, mode).pipe(
    Effect.flatMap((handle) =>
      writeAll(file, handle, bytes).pipe(
        Effect.andThen(onFile(file, () => handle.chmod(mode))),
        Effect.andThen(onFile(file, () => handle.sync()))
      )
    ),
    Effect.scoped,
    Effect.andThen(commitFile(temporary, file)),
    Effect.onError(() => Effect.ignore(removeFile(temporary)))
  )
}

/** Makes an empty file that only the daemon's user may open (0600), unless there is one, which is not touched. */
export const makePrivateFile = (file: string): Effect.Effect<void, FileProblem> =>
  openFile(file, constants.O_RDWR | constants.O_CREAT | constants.O_EXCL, 0o600).pipe(
    Effect.scoped,
    Effect.andThen(syncDirectory(path.dirname(file))),
    // An open file is not opened a second time: closing it would end the locks that this process has on it.
    Effect.catchIf(
      (problem) => problem.code === "EEXIST",
      () => Effect.void
    )
  )

/** Removes what an earlier daemon left half made: every entry whose name starts with `prefix`. */
export const removeLeftovers = (directory: string, prefix: string): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    const names = yield* onFile(directory, () => fs.readdir(directory))
    for (const name of names.filter((candidate) => candidate.startsWith(prefix))) {
      const leftover = path.join(directory, name)
      yield* onFile(leftover, () => fs.rm(leftover, { recursive: true, force: true }))
    }
  })

/** Size in bytes of a regular file; undefined when there is nothing of that name. */
export const fileSize = (file: string): Effect.Effect<number | undefined, FileProblem> =>
  ifPresent(onFile(file, () => fs.lstat(file))).pipe(
    Effect.map((stat) => (stat?.isFile() === true ? stat.size : undefined))
  )
