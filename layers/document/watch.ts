/**
 * `desired.json` on the disk, as it changes.
 *
 * Its directory is watched with `fs.watch` (inotify). chokidar was tried: it looks at a path at most once in a
 * few milliseconds and drops what comes in between, so of two renames in quick succession it often reports only
 * the first; and it reads the whole directory for every change of any file in it, where inotify names the file.
 */
import { createHash } from "node:crypto"
import { constants, type FSWatcher, watch } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect, Layer, Queue, Schedule, type Scope, Stream } from "effect"
import { MAX_DOCUMENT_BYTES } from "../../src/document/text.ts"
import {
  type DocumentReading,
  DocumentSource,
  DocumentSourceError
} from "../../src/services/DocumentSource.ts"
import { makeDirectory, openFile } from "../files/durable.ts"
import { FileProblem, fileProblem, onFile } from "../files/problem.ts"

/** The file is read so often whatever the watch says. */
const BACKSTOP = "30 seconds"
/** A file that is written in place changes many times: it is read once it has been left alone so long. */
const SETTLE = "20 millis"

export interface WatchedDocumentOptions {
  /** Absolute; `paths.desired_state_file` of the configuration. */
  readonly path: string
}

/** The directory is made if there is none: a host may be set up before its first document. */
export const layerWatchedDocument = (options: WatchedDocumentOptions) =>
  Layer.succeed(DocumentSource, {
    path: options.path,
    read: readDocument(options.path),
    readings: readings(options.path)
  })

/** Gives room for so many bytes: the same as before, whose contents are over then, where that is about as large. */
type Room = (bytes: number) => Buffer

const newRoom: Room = (bytes) => Buffer.allocUnsafeSlow(bytes)

/** What was read last is kept: the engine would let many large buffers lie before it gives one back. */
const sameRoom = (): Room => {
  let kept = newRoom(0)
  return (bytes) => {
    if (kept.length < bytes || kept.length > 2 * bytes) kept = newRoom(bytes)
    return kept.subarray(0, bytes)
  }
}

const readings = (file: string): Stream.Stream<DocumentReading, DocumentSourceError> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const room = sameRoom()
      const directory = path.dirname(file)
      // One place: a document that changes while it is being read is read again, however often it changed.
      const looks = yield* Queue.sliding<void>(1)
      const watch = yield* makeWatch(directory, path.basename(file), () =>
        Queue.offerUnsafe(looks, undefined)
      )
      yield* makeDirectory(directory).pipe(Effect.andThen(watch.renew), unwatchable(file))
      yield* Queue.offer(looks, undefined)
      yield* Effect.sleep(BACKSTOP).pipe(
        Effect.raceFirst(watch.lost),
        // The document may have gone with its directory.
        Effect.andThen(Queue.offer(looks, undefined)),
        Effect.andThen(renewed(watch, file)),
        Effect.andThen(Queue.offer(looks, undefined)),
        Effect.forever,
        Effect.forkScoped
      )
      const look = Effect.sleep(SETTLE).pipe(
        Effect.andThen(Queue.clear(looks)),
        Effect.andThen(readDocument(file, room))
      )
      return Stream.fromQueue(looks).pipe(Stream.mapEffect(() => look))
    })
  )

/** Watches again; while that cannot be done it is said once and tried each second. */
const renewed = (watch: DirectoryWatch, file: string): Effect.Effect<void> =>
  watch.renew.pipe(
    Effect.catch((problem) =>
      Effect.logWarning(`the document ${file} is not watched at the moment: ${problem.reason}`).pipe(
        Effect.andThen(Effect.retry(watch.renew, Schedule.spaced("1 second"))),
        Effect.orDie,
        Effect.andThen(Effect.logInfo(`the document ${file} is watched again`))
      )
    )
  )

interface DirectoryWatch {
  /** Watches what has the directory's name now; nothing to do when that is watched already. */
  readonly renew: Effect.Effect<void, FileProblem>
  /** Succeeds when the directory was moved or removed, or its watch has broken. */
  readonly lost: Effect.Effect<void>
}

const makeWatch = (
  directory: string,
  name: string,
  notice: () => void
): Effect.Effect<DirectoryWatch, never, Scope.Scope> =>
  Effect.gen(function* () {
    const losses = yield* Queue.sliding<void>(1)
    let current: { readonly inode: number; readonly watcher: FSWatcher } | undefined
    const stop = () => {
      current?.watcher.close()
      current = undefined
    }
    yield* Effect.addFinalizer(() => Effect.sync(stop))

    const lose = () => {
      stop()
      Queue.offerUnsafe(losses, undefined)
    }

    const start = (inode: number) =>
      Effect.try({
        try: () => {
          const watcher = watch(directory, (_event, changed) => {
            if (changed === null || changed === name) notice()
            // inotify names the directory itself when it is moved or removed.
            if (changed === path.basename(directory)) lose()
          })
          watcher.on("error", lose)
          current = { inode, watcher }
        },
        catch: (error) => watchProblem(directory, error)
      })

    return {
      lost: Queue.take(losses),
      renew: onFile(directory, () => fs.stat(directory)).pipe(
        Effect.tapError(() => Effect.sync(stop)),
        Effect.flatMap(({ ino }) => {
          if (current?.inode === ino) return Effect.void
          stop()
          return start(ino)
        })
      )
    }
  })

/** inotify's limits come under codes that mean something else for files. */
const watchProblem = (directory: string, error: unknown): FileProblem => {
  const problem = fileProblem(directory, error)
  const limit =
    problem.code === "ENOSPC"
      ? "max_user_watches"
      : problem.code === "EMFILE"
        ? "max_user_instances"
        : undefined
  return limit === undefined
    ? problem
    : new FileProblem({ ...problem, reason: `the host has no inotify watch left (fs.inotify.${limit})` })
}

const readingOf = (bytes: Uint8Array): DocumentReading => ({
  kind: "read",
  bytes,
  digest: createHash("sha256").update(bytes).digest("hex")
})

/** What lies under the document's name now. Never more than `MAX_DOCUMENT_BYTES` are read. */
export const readDocument = (file: string, room: Room = newRoom): Effect.Effect<DocumentReading> =>
  Effect.gen(function* (): Effect.fn.Return<DocumentReading, FileProblem, Scope.Scope> {
    const unreadable = (reason: string): DocumentReading => ({ kind: "unreadable", reason })
    // Without O_NONBLOCK a FIFO would hold the daemon until somebody writes into it.
    const handle = yield* openFile(file, constants.O_RDONLY | constants.O_NONBLOCK)
    const stat = yield* onFile(file, () => handle.stat())
    if (!stat.isFile()) return unreadable(`${file} is not a regular file`)
    if (stat.size > MAX_DOCUMENT_BYTES)
      return unreadable(
        `${file} has ${stat.size} bytes; at most ${MAX_DOCUMENT_BYTES} (${MAX_DOCUMENT_BYTES / 2 ** 20} MiB) are read`
      )
    // One byte more, to see that a file grows meanwhile.
    const buffer = room(stat.size + 1)
    let length = 0
    while (length < buffer.length) {
      const { bytesRead } = yield* onFile(file, () => handle.read(buffer, length, buffer.length - length))
      if (bytesRead === 0) return readingOf(buffer.subarray(0, length))
      length += bytesRead
    }
    return unreadable(`${file} grew while it was read; replace it by a rename`)
  }).pipe(
    Effect.scoped,
    Effect.catch((problem) =>
      Effect.succeed<DocumentReading>(
        problem.code === "ENOENT" || problem.code === "ENOTDIR"
          ? { kind: "absent" }
          : { kind: "unreadable", reason: problem.reason }
      )
    )
  )

const unwatchable = (file: string) =>
  Effect.mapError((problem: FileProblem) => new DocumentSourceError({ path: file, reason: problem.reason }))
