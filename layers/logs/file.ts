/** `<state_dir>/logs/<appId>.log`, and `.log.1` before it: what each app's program printed. */
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect, Exit, Layer, RcMap, Scope, Semaphore } from "effect"
import type { AppId } from "../../src/document/schema.ts"
import { AppLogs } from "../../src/services/AppLogs.ts"
import { makeDirectory, openFile, removeFile, writeAll } from "../files/durable.ts"
import { type FileProblem, ifPresent, onFile } from "../files/problem.ts"
import { openSession } from "./session.ts"

export interface FileLogsOptions {
  /** Absolute; the logs are in `logs/` in it, which only the daemon's user may enter. */
  readonly stateDir: string
  /** Bytes that one file of an app may have; an app has two. `logs.keep_mib_per_app` of the configuration. */
  readonly keepBytes: number
}

/** The file of an app, and the one before it. */
export const logFiles = (stateDir: string, appId: AppId): readonly [current: string, previous: string] => {
  const current = path.join(stateDir, "logs", `${appId}.log`)
  return [current, `${current}.1`]
}

/**
 * Fails when the directory cannot be made. Nothing is flushed to the disk: with the power the last lines go, with
 * the daemon none. Sessions of one app share its file.
 */
export const layerFileLogs = (options: FileLogsOptions) =>
  Layer.effect(
    AppLogs,
    Effect.gen(function* () {
      yield* makeDirectory(path.join(options.stateDir, "logs"), 0o700)
      const writers = yield* RcMap.make({ lookup: (appId: AppId) => makeWriter(appId, options) })
      return {
        open: (appId, sessionId) =>
          RcMap.get(writers, appId).pipe(Effect.flatMap((writer) => openSession(sessionId, writer.append))),
        forget: (appId) =>
          RcMap.get(writers, appId).pipe(
            Effect.flatMap((writer) => writer.remove),
            Effect.scoped
          )
      }
    })
  )

interface Writer {
  readonly append: (records: ReadonlyArray<string>) => Effect.Effect<void>
  readonly remove: Effect.Effect<void>
}

interface OpenLog {
  readonly handle: fs.FileHandle
  readonly scope: Scope.Closeable
  readonly inode: number
  size: number
}

const makeWriter = (appId: AppId, options: FileLogsOptions): Effect.Effect<Writer, never, Scope.Scope> =>
  Effect.gen(function* () {
    const [current, previous] = logFiles(options.stateDir, appId)
    const turn = yield* Semaphore.make(1)
    let log: OpenLog | undefined
    /** Records lost since writing failed, and the reason that was said; none while it works. */
    let lost: { records: number; readonly reason: string } | undefined

    const close = Effect.suspend(() => {
      const open = log
      log = undefined
      return open === undefined ? Effect.void : Scope.close(open.scope, Exit.void)
    })
    yield* Effect.addFinalizer(() => close)

    const open = Effect.gen(function* () {
      const scope = yield* Scope.make()
      log = yield* Effect.gen(function* () {
        const flags = constants.O_RDWR | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW
        const handle = yield* openFile(current, flags)
        const { ino, size } = yield* onFile(current, () => handle.stat())
        const opened: OpenLog = { handle, scope, inode: ino, size }
        yield* endTornRecord(opened)
        return opened
      }).pipe(
        Scope.provide(scope),
        Effect.onError(() => Scope.close(scope, Exit.void))
      )
      return log
    })

    /** A daemon that died while it wrote may have left half a record: the next one starts on a line of its own. */
    const endTornRecord = (open: OpenLog) =>
      Effect.gen(function* () {
        if (open.size === 0) return
        const last = Buffer.alloc(1)
        yield* onFile(current, () => open.handle.read(last, 0, 1, open.size - 1))
        if (last[0] === 0x0a) return
        yield* writeAll(current, open.handle, Buffer.from("\n"))
        open.size += 1
      })

    /** The file under the log's name: opened when it is not, or when somebody has moved it away. */
    const opened = Effect.gen(function* () {
      if (log === undefined) return yield* open
      const named = yield* ifPresent(onFile(current, () => fs.stat(current)))
      if (named?.ino === log.inode) return log
      yield* close
      return yield* open
    })

    const rotate = close.pipe(
      Effect.andThen(ifPresent(onFile(current, () => fs.rename(current, previous)))),
      Effect.andThen(open)
    )

    const write = (records: Buffer) =>
      Effect.gen(function* () {
        const open = yield* opened
        yield* writeAll(current, open.handle, records).pipe(
          // Half a record must not stay in front of the next one.
          Effect.onError(() => Effect.ignore(onFile(current, () => open.handle.truncate(open.size))))
        )
        open.size += records.length
      })

    const appendAll = (records: ReadonlyArray<string>) =>
      Effect.gen(function* () {
        let size = (yield* opened).size
        let batch: Array<Buffer> = []
        for (const record of records) {
          const line = Buffer.from(`${record}\n`)
          if (size > 0 && size + line.length > options.keepBytes) {
            if (batch.length > 0) yield* write(Buffer.concat(batch))
            batch = []
            size = (yield* rotate).size
          }
          batch.push(line)
          size += line.length
        }
        yield* write(Buffer.concat(batch))
      })

    const sayLost = (problem: FileProblem, records: number) =>
      Effect.suspend(() => {
        const said = lost?.reason === problem.reason
        lost = { records: (lost?.records ?? 0) + records, reason: problem.reason }
        return said
          ? Effect.void
          : Effect.logWarning(
              `the log of app ${appId} cannot be written, its lines are lost: ${problem.reason}`
            )
      })

    const sayRecovered = Effect.suspend(() => {
      if (lost === undefined) return Effect.void
      const { records } = lost
      lost = undefined
      return Effect.logWarning(`the log of app ${appId} is written again; up to ${records} lines were lost`)
    })

    return {
      append: (records) =>
        appendAll(records).pipe(
          Effect.andThen(sayRecovered),
          Effect.catchTag("FileProblem", (problem) => sayLost(problem, records.length)),
          Effect.uninterruptible,
          turn.withPermits(1)
        ),
      remove: close.pipe(
        Effect.andThen(removeFile(current)),
        Effect.andThen(removeFile(previous)),
        Effect.catchTag("FileProblem", (problem) =>
          Effect.logWarning(`the log of app ${appId} cannot be deleted: ${problem.reason}`)
        ),
        Effect.uninterruptible,
        turn.withPermits(1)
      )
    }
  })
