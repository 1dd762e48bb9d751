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

type Append = (records: ReadonlyArray<string>) => Effect.Effect<void>

/**
 * Opens a log whose records (lines without their newline) go to `append`, in the order of their sequence.
 * `append` is never called twice at the same time, and never interrupted.
 */
export const openSession = (sessionId: string, append: Append): Effect.Effect<AppLog, never, Scope.Scope> =>
  Effect.gen(function* () {
    const session = new Session(sessionId, append, yield* Effect.scope)
    yield* Effect.addFinalizer(() => session.end)
    return session
  })

const openStream = (name: StreamName): OpenStream => ({
  name,
  lines: new LineCutter(),
  lastOutputAt: 0,
  watched: false
})

class Session implements AppLog {
  readonly #id: string
  readonly #append: Append
  readonly #scope: Scope.Scope
  readonly #turn = Semaphore.makeUnsafe(1)
  readonly #streams: Record<StreamName, OpenStream> = {
    stdout: openStream("stdout"),
    stderr: openStream("stderr")
  }
  #sequence = 0

  constructor(id: string, append: Append, scope: Scope.Scope) {
    this.#id = id
    this.#append = append
    this.#scope = scope
  }

  output(name: StreamName, bytes: Uint8Array): Effect.Effect<void> {
    return this.#inTurn((now) => {
      const stream = this.#streams[name]
      stream.lastOutputAt = now
      const lines = stream.lines.push(bytes)
      const write = Effect.suspend(() =>
        lines.length === 0
          ? Effect.void
          : this.#append(lines.map((line) => this.#record(now, name, programText(line))))
      )
      if (!stream.lines.unfinished || stream.watched) return write
      stream.watched = true
      return this.#writeWhenQuiet(stream).pipe(
        Effect.interruptible,
        Effect.forkIn(this.#scope),
        Effect.andThen(write)
      )
    })
  }

  gap(bytes: number): Effect.Effect<void> {
    return this.note(`${bytes} bytes of output were lost here`)
  }

  /** The host's lines come after what the program had said by then. */
  note(text: string): Effect.Effect<void> {
    return this.#inTurn((now) =>
      this.#append([...this.#unfinished(now), this.#record(now, "stderr", HOST_MARK + visibleText(text))])
    )
  }

  /** Writes what is left of unfinished lines. */
  get end(): Effect.Effect<void> {
    return this.#inTurn((now) => {
      const records = this.#unfinished(now)
      return records.length === 0 ? Effect.void : this.#append(records)
    })
  }

  /** Numbering records and handing them on is one step. */
  #inTurn(step: (now: number) => Effect.Effect<void>): Effect.Effect<void> {
    return this.#turn
      .withPermits(1)(Effect.flatMap(Clock.currentTimeMillis, step))
      .pipe(Effect.uninterruptible)
  }

  #record(now: number, stream: StreamName, text: string): string {
    const header = `${new Date(now).toISOString()} ${stream} ${this.#id}/${this.#sequence}`
    this.#sequence += 1
    return `${header} ${text}`
  }

  #unfinished(now: number): Array<string> {
    const { stdout, stderr } = this.#streams
    return [stdout, stderr].flatMap(({ name, lines }) => {
      const text = lines.takeAll()
      return text === undefined ? [] : [this.#record(now, name, programText(text))]
    })
  }

  #writeWhenQuiet(stream: OpenStream): Effect.Effect<void> {
    const left = Effect.map(Clock.currentTimeMillis, (now) => stream.lastOutputAt + QUIET_MS - now)
    const write = this.#inTurn((now) => {
      stream.watched = false
      const text = stream.lines.takeUnfinished()
      return text === undefined
        ? Effect.void
        : this.#append([this.#record(now, stream.name, programText(text))])
    })
    return Effect.gen(function* () {
      for (let ms = yield* left; ms > 0; ms = yield* left) yield* Effect.sleep(ms)
      yield* write
    })
  }
}
