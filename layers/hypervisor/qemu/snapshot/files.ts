/**
 * The files of a snapshot, `<snapshot_dir>/<appId>/`. The record is what makes them one: it is written last, vouches for
 * every byte of the others, and is the first to go.
 */
import { constants, rmSync } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { crc32 } from "node:zlib"
import { Effect, Schema } from "effect"
import { SnapshotRecord } from "../../../../src/services/Hypervisor.ts"
import { makeDirectory, openFile, syncDirectory, writeAll } from "../../../files/durable.ts"
import { type FileProblem, fileProblem, ifPresent, onFile } from "../../../files/problem.ts"

export interface SnapshotFiles {
  readonly directory: string
  /** The guest's memory as it lies in the guest. Pages of zeros are holes. */
  readonly memory: string
  /** Which parts of the memory are stored, and a checksum for each. */
  readonly sums: string
  /** The state of the devices, for QEMU. */
  readonly state: string
  readonly record: string
  /** The record's name while the snapshot is being woken. */
  readonly used: string
}

export const snapshotFiles = (directory: string): SnapshotFiles => ({
  directory,
  memory: join(directory, "memory"),
  sums: join(directory, "memory.sums"),
  state: join(directory, "state"),
  record: join(directory, "record"),
  used: join(directory, "record.used")
})

const PENDING = ".pending-"

/** Where a snapshot is written until it is whole: beside its place, on the same filesystem. */
export const pendingDirectory = (directory: string): string =>
  join(dirname(directory), `${PENDING}${basename(directory)}`)

const Part = Schema.Struct({ bytes: Schema.Int, crc32: Schema.Int })

/** What the file `record` holds. */
export const StoredRecord = Schema.Struct({
  ...SnapshotRecord.fields,
  files: Schema.Struct({
    memory: Schema.Struct({ bytes: Schema.Int, stored: Schema.Int }),
    sums: Part,
    state: Part
  })
})
export interface StoredRecord extends Schema.Schema.Type<typeof StoredRecord> {}

const StoredRecordText = Schema.fromJsonString(StoredRecord)
const decodeRecord = Schema.decodeUnknownOption(StoredRecordText)
const encodeRecord = Schema.encodeSync(StoredRecordText)

const hex = (sum: number) => sum.toString(16).padStart(8, "0")

/** The record's text: its own checksum on a line, then JSON. */
export const recordText = (record: StoredRecord): string => {
  const json = encodeRecord(record)
  return `${hex(crc32(json))}\n${json}`
}

/** None for a text of which one bit or more has changed. */
export const parseRecord = (bytes: Uint8Array): StoredRecord | undefined => {
  const line = bytes.indexOf(0x0a)
  const json = bytes.subarray(line + 1)
  if (line !== 8 || new TextDecoder().decode(bytes.subarray(0, 8)) !== hex(crc32(json))) return undefined
  const decoded = decodeRecord(new TextDecoder().decode(json))
  return decoded._tag === "Some" ? decoded.value : undefined
}

/** The whole of a file; undefined when there is none. */
export const readWhole = (path: string): Effect.Effect<Uint8Array | undefined, FileProblem> =>
  ifPresent(onFile(path, () => fs.readFile(path)))

/** Writes a file of a pending snapshot and flushes it. */
export const writePart = (path: string, bytes: Uint8Array): Effect.Effect<void, FileProblem> =>
  openFile(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o600).pipe(
    Effect.flatMap((handle) =>
      writeAll(path, handle, bytes).pipe(Effect.andThen(onFile(path, () => handle.sync())))
    ),
    Effect.scoped
  )

const remove = (path: string) => onFile(path, () => fs.rm(path, { recursive: true, force: true }))

/** An empty pending directory; what an earlier sleep left there goes. */
export const makePending = (directory: string): Effect.Effect<SnapshotFiles, FileProblem> =>
  Effect.gen(function* () {
    const pending = pendingDirectory(directory)
    yield* makeDirectory(dirname(directory), 0o700)
    yield* remove(pending)
    yield* onFile(pending, () => fs.mkdir(pending, { mode: 0o700 }))
    return snapshotFiles(pending)
  })

/** Gives a pending snapshot its place. It counts from here on, whatever happens to this machine. */
export const commitPending = (directory: string): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    const pending = pendingDirectory(directory)
    yield* syncDirectory(pending)
    yield* onFile(directory, () => fs.rename(pending, directory))
    yield* syncDirectory(dirname(directory))
  })

/** The names of all that a snapshot may be made of. */
const OWN_NAMES: ReadonlySet<string> = new Set(
  Object.values(snapshotFiles("/")).map((path) => basename(path))
)

/**
 * Whether it can have been put there by us: `snapshot_dir` may be a directory of somebody's, by mistake. An empty
 * one may be anybody's.
 */
const isOurs = (path: string): Effect.Effect<boolean, FileProblem> =>
  basename(path).startsWith(PENDING)
    ? Effect.succeed(true)
    : onFile(path, () => fs.readdir(path)).pipe(
        Effect.map((inside) => inside.length > 0 && inside.every((each) => OWN_NAMES.has(each))),
        Effect.catchIf(
          ({ code }) => code === "ENOTDIR" || code === "ENOENT",
          () => Effect.succeed(false)
        )
      )

/**
 * Removes the snapshot, the record first and for good: what is left of it after a crash is none. What is no snapshot
 * stays where it is.
 */
export const discardSnapshot = (directory: string): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    if (yield* isOurs(directory)) {
      const { record } = snapshotFiles(directory)
      yield* ifPresent(onFile(record, () => fs.unlink(record)))
      yield* ifPresent(syncDirectory(directory))
      yield* remove(directory)
    }
    yield* remove(pendingDirectory(directory))
  })

/** Removes what is left of a snapshot that was used up: at once, because the machine that woke from it is waited for. */
export const removeUsed = (files: SnapshotFiles): Effect.Effect<void, FileProblem> =>
  Effect.try({
    try: () => rmSync(files.directory, { recursive: true, force: true }),
    catch: (error) => fileProblem(files.directory, error)
  })

/** From here on the snapshot is none, whatever happens to this machine. */
export const useUp = (files: SnapshotFiles): Effect.Effect<void, FileProblem> =>
  onFile(files.record, () => fs.rename(files.record, files.used)).pipe(
    Effect.andThen(syncDirectory(files.directory))
  )

/** Undoes `useUp`, for a snapshot that nothing has run from. No error when it was not used up. */
export const putBack = (files: SnapshotFiles): Effect.Effect<void, FileProblem> =>
  Effect.asVoid(ifPresent(onFile(files.used, () => fs.rename(files.used, files.record))))

/** Removes from `root` what is left of snapshots and is none of a name in `keep`; gives the names of what it removed. */
export const sweepSnapshots = (
  root: string,
  keep: ReadonlyArray<string>
): Effect.Effect<ReadonlyArray<string>, FileProblem> =>
  Effect.gen(function* () {
    const names = (yield* ifPresent(onFile(root, () => fs.readdir(root)))) ?? []
    const swept: Array<string> = []
    for (const name of names) {
      if (!(yield* isOurs(join(root, name)))) continue
      const whole = yield* readWhole(join(root, name, "record")).pipe(
        // a plain file in the way is no snapshot either
        Effect.catchIf(
          (problem) => problem.code === "ENOTDIR",
          () => Effect.succeed(undefined)
        )
      )
      if (whole !== undefined && keep.includes(name)) continue
      yield* remove(join(root, name))
      swept.push(name)
    }
    return swept.map((name) => (name.startsWith(PENDING) ? name.slice(PENDING.length) : name))
  })
