/**
 * An app's log from its end, across its two files, and what is written to it from then on.
 *
 * Files are known by their inodes, for their names move on: a log that was rotated or removed under the reader is read
 * to its end, and then what has taken its name. Of a log that was rotated twice between two looks, the file that is
 * gone by then is lost to the reader.
 */
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { type Cause, Effect, Exit, Queue, Scope, Stream } from "effect"
import { openFile } from "../files/durable.ts"
import { type FileProblem, ifPresent, onFile } from "../files/problem.ts"

const NEWLINE = 0x0a
const PIECE = 64 * 1024
/** Between two looks at a log that is followed. */
const LOOK_EVERY = "200 millis"

interface OpenLog {
  readonly file: string
  readonly handle: fs.FileHandle
  readonly inode: number
  readonly scope: Scope.Closeable
  /** How far it has been read. */
  offset: number
  /** What was read behind the last newline. */
  rest: Buffer
}

const close = (log: OpenLog) => Scope.close(log.scope, Exit.void)

/** Opens what has the name now; undefined when nothing has. */
const open = (file: string): Effect.Effect<OpenLog | undefined, FileProblem, Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Scope.fork(yield* Effect.scope)
    const handle = yield* ifPresent(
      openFile(file, constants.O_RDONLY | constants.O_NOFOLLOW).pipe(Scope.provide(scope))
    )
    if (handle === undefined) return undefined
    const { ino } = yield* onFile(file, () => handle.stat())
    return { file, handle, inode: ino, scope, offset: 0, rest: Buffer.alloc(0) }
  })

const sizeOf = ({ file, handle }: OpenLog) =>
  Effect.map(
    onFile(file, () => handle.stat()),
    ({ size }) => size
  )

/** Opens the log and the file before it, as they were at one moment. */
const openBoth = ([current, previous]: readonly [string, string]): Effect.Effect<
  readonly [OpenLog | undefined, OpenLog | undefined],
  FileProblem,
  Scope.Scope
> =>
  Effect.gen(function* () {
    const newer = yield* open(current)
    const older = yield* open(previous)
    const named = yield* ifPresent(onFile(current, () => fs.stat(current)))
    if (named?.ino === newer?.inode) return [newer, older] as const
    // It was rotated or removed in between.
    if (newer !== undefined) yield* close(newer)
    if (older !== undefined) yield* close(older)
    return yield* openBoth([current, previous])
  })

/** Moves to the start of the last `count` lines; how many of them the file has. */
const seekLast = (log: OpenLog, count: number): Effect.Effect<number, FileProblem> =>
  Effect.gen(function* () {
    const size = yield* sizeOf(log)
    log.offset = size
    if (count === 0 || size === 0) return 0
    let found = 0
    const piece = Buffer.alloc(PIECE)
    for (let end = size; end > 0; ) {
      const start = Math.max(0, end - PIECE)
      const { bytesRead } = yield* onFile(log.file, () => log.handle.read(piece, 0, end - start, start))
      for (let at = bytesRead - 1; at >= 0; at--) {
        // The newline at the very end ends the last line; each other one ends the line before those found.
        if (piece[at] !== NEWLINE || start + at === size - 1) continue
        found++
        if (found === count) {
          log.offset = start + at + 1
          return found
        }
      }
      end = start
    }
    log.offset = 0
    return found + 1
  })

type Lines = Queue.Enqueue<string, FileProblem | Cause.Done>

const offerLine = (lines: Lines, bytes: Buffer) => Queue.offer(lines, bytes.toString("utf8"))

/** Hands on every whole line up to the file's end. */
const drain = (log: OpenLog, lines: Lines): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    // The host takes back a record that it could not write whole.
    if ((yield* sizeOf(log)) < log.offset) {
      log.offset -= log.rest.length
      log.rest = Buffer.alloc(0)
    }
    for (;;) {
      const piece = Buffer.alloc(PIECE)
      const { bytesRead } = yield* onFile(log.file, () => log.handle.read(piece, 0, PIECE, log.offset))
      if (bytesRead === 0) return
      log.offset += bytesRead
      const bytes = Buffer.concat([log.rest, piece.subarray(0, bytesRead)])
      let start = 0
      for (let end = bytes.indexOf(NEWLINE); end !== -1; end = bytes.indexOf(NEWLINE, start)) {
        yield* offerLine(lines, bytes.subarray(start, end))
        start = end + 1
      }
      log.rest = Buffer.from(bytes.subarray(start))
    }
  })

/** Hands on the rest of a file that nobody writes to any more. */
const finish = (log: OpenLog, lines: Lines): Effect.Effect<void, FileProblem> =>
  drain(log, lines).pipe(
    Effect.andThen(Effect.suspend(() => (log.rest.length > 0 ? offerLine(lines, log.rest) : Effect.void))),
    Effect.andThen(close(log))
  )

/** Reads for ever what is written under the log's name. */
const follow = (
  names: readonly [string, string],
  first: OpenLog | undefined,
  lines: Lines
): Effect.Effect<never, FileProblem, Scope.Scope> =>
  Effect.gen(function* () {
    let log = first
    for (;;) {
      if (log !== undefined) yield* drain(log, lines)
      const named = yield* ifPresent(onFile(names[0], () => fs.stat(names[0])))
      if (named?.ino === log?.inode) {
        yield* Effect.sleep(LOOK_EVERY)
        continue
      }
      if (log === undefined) {
        log = yield* open(names[0])
        continue
      }
      const [newer, older] = yield* openBoth(names)
      yield* finish(log, lines)
      // Rotated twice: what was the log in between is the older file now.
      if (newer !== undefined && older !== undefined && older.inode !== log.inode) yield* finish(older, lines)
      else if (older !== undefined) yield* close(older)
      log = newer
    }
  })

export interface TailOptions {
  /** Lines, 0 or more. */
  readonly last: number
  readonly follow: boolean
}

/**
 * Lines without their newline, oldest first.
 *
 * @param names the log's file, and the one before it
 */
export const tail = (
  names: readonly [current: string, previous: string],
  options: TailOptions
): Stream.Stream<string, FileProblem> =>
  Stream.callback<string, FileProblem>(
    (lines) =>
      Effect.gen(function* () {
        const [newer, older] = yield* openBoth(names)
        const found = newer === undefined ? 0 : yield* seekLast(newer, options.last)
        if (older !== undefined) {
          yield* seekLast(older, options.last - found)
          yield* finish(older, lines)
        }
        if (options.follow) return yield* follow(names, newer, lines)
        if (newer !== undefined) yield* finish(newer, lines)
        return yield* Queue.end(lines)
      }).pipe(Effect.onError((cause) => Queue.failCause(lines, cause))),
    { bufferSize: 1024, strategy: "suspend" }
  )
