/** One conversation's part of an app's log: lines in, records out, whoever keeps them. */
import { Clock, Effect, type Scope, Semaphore } from "effect"
import type { AppLog } from "../../src/services/AppLogs.ts"
import { HOST_MARK, LineCutter, programText, visibleText } from "./lines.ts"

/** An unfinished line is written after so much quiet. */
export const QUIET_MS = 250

type StreamName = "stdout" | "stderr"

interface OpenStream {
  readonly name: StreamName
  readonly lines: LineCutter
  lastOutputAt: number
  /** A fiber waits for the stream to be quiet. */
  watched: boolean
}

/**
 * Opens a log whose records (lines without their newline) go to `append`, in the order of their sequence.
 * `append` is never called twice at the same time, and never interrupted.
 */
export const openSession = (
  sessionId: string,
  append: (records: ReadonlyArray<string>) => Effect.Effect<void>
): Effect.Effect<AppLog, never, Scope.Scope> =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const turn = yield* Semaphore.make(1)
    /** Numbering records and handing them on is one step. */
    const inTurn = (step: (now: number) => Effect.Effect<void>) =>
      turn.withPermits(1)(Effect.flatMap(Clock.currentTimeMillis, step)).pipe(Effect.uninterruptible)
    let sequence = 0
    const streams: Record<StreamName, OpenStream> = {
      stdout: { name: "stdout", lines: new LineCutter(), lastOutputAt: 0, watched: false },
      stderr: { name: "stderr", lines: new LineCutter(), lastOutputAt: 0, watched: false }
    }

    const record = (now: number, stream: StreamName, text: string): string => {
      const header = `${new Date(now).toISOString()} ${stream} ${sessionId}/${sequence}`
      sequence += 1
      return `${header} ${text}`
    }

    const unfinished = (now: number, take: (lines: LineCutter) => string | undefined): Array<string> =>
      [streams.stdout, streams.stderr].flatMap((stream) => {
        const text = take(stream.lines)
        return text === undefined ? [] : [record(now, stream.name, programText(text))]
      })

    // The host's lines come after what the program had said by then.
    const hostLine = (text: string) =>
      inTurn((now) =>
        append([
          ...unfinished(now, (lines) => lines.takeAll()),
          record(now, "stderr", HOST_MARK + visibleText(text))
        ])
      )

    const writeWhenQuiet = (stream: OpenStream): Effect.Effect<void> =>
      Effect.gen(function* () {
        for (;;) {
          const left = stream.lastOutputAt + QUIET_MS - (yield* Clock.currentTimeMillis)
          if (left <= 0) break
          yield* Effect.sleep(left)
        }
        yield* inTurn((now) => {
          stream.watched = false
          const text = stream.lines.takeUnfinished()
          return text === undefined ? Effect.void : append([record(now, stream.name, programText(text))])
        })
      })

    yield* Effect.addFinalizer(() =>
      inTurn((now) => {
        const records = unfinished(now, (lines) => lines.takeAll())
        return records.length === 0 ? Effect.void : append(records)
      })
    )

    return {
      output: (name, bytes) =>
        inTurn((now) =>
          Effect.gen(function* () {
            const stream = streams[name]
            stream.lastOutputAt = now
            const lines = stream.lines.push(bytes)
            if (stream.lines.unfinished && !stream.watched) {
              stream.watched = true
              yield* writeWhenQuiet(stream).pipe(Effect.interruptible, Effect.forkIn(scope))
            }
            if (lines.length > 0) yield* append(lines.map((line) => record(now, name, programText(line))))
          })
        ),
      gap: (bytes) => hostLine(`${bytes} bytes of output were lost here`),
      note: hostLine
    }
  })
