/** QMP: QEMU's control protocol, one JSON object a line over a unix socket that takes one client at a time. */
import { createConnection, type Socket } from "node:net"
import { Deferred, Effect, Schedule, Schema, type Scope } from "effect"

export class QmpError extends Schema.TaggedError<QmpError>()("QmpError", {
  command: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `QEMU did not answer ${this.command}: ${this.reason}`
  }
}

/** A conversation with one QEMU. */
export interface Qmp {
  /** What QEMU returns for the command; fails when it refuses, says nothing for 20 s or hangs up. */
  readonly execute: (command: string, args?: Record<string, unknown>) => Effect.Effect<unknown, QmpError>
  /** Done when QEMU has hung up, which is when it ends. */
  readonly closed: Deferred.Deferred<void>
  /** Why QEMU is shutting down, in its own word (`guest-shutdown`, `guest-reset`, …), once it has said so. */
  readonly shutdownReason: () => string | undefined
}

/** Longer lines are not QMP's: whoever speaks there is hung up on. */
const MAX_LINE_BYTES = 1024 * 1024
const ANSWER_LIMIT_MS = 20_000
const LISTENING_EVERY_MS = 2

type Answer = { readonly return: unknown } | { readonly error: string }

const text = (value: unknown) => (typeof value === "string" ? value.slice(0, 300) : "no reason given")

const parse = (line: string): Record<string, unknown> | undefined => {
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : undefined
  } catch {
    return undefined
  }
}

/** Splits what arrives into lines; `false` from it: a line is too long. */
const lineSplitter = (onLine: (line: string) => void) => {
  const decoder = new TextDecoder()
  let pending = ""
  return (piece: Uint8Array): boolean => {
    pending += decoder.decode(piece, { stream: true })
    const lines = pending.split("\n")
    pending = lines.pop() ?? ""
    for (const line of lines) onLine(line)
    return pending.length <= MAX_LINE_BYTES
  }
}

/** Connected, or why not. */
const open = (path: string): Effect.Effect<Socket, QmpError, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.callback<Socket, QmpError>((resume) => {
      const socket = createConnection({ path })
      const failed = (error: Error) => {
        socket.destroy()
        resume(Effect.fail(new QmpError({ command: "a connection", reason: error.message })))
      }
      socket.once("error", failed)
      socket.once("connect", () => {
        socket.off("error", failed)
        // From here on "close" tells all: an error without a listener would end the daemon.
        socket.on("error", () => undefined)
        resume(Effect.succeed(socket))
      })
      return Effect.sync(() => socket.destroy())
    }),
    (socket) => Effect.sync(() => socket.destroy())
  )

/**
 * Connects, waits for the greeting and enters command mode. The connection ends with the scope. With `untilListening` it
 * is tried again for ever while nobody listens: for a QEMU that is starting.
 */
export const connectQmp = (
  path: string,
  options: { readonly untilListening: boolean }
): Effect.Effect<Qmp, QmpError, Scope.Scope> =>
  Effect.gen(function* () {
    const socket = yield* options.untilListening
      ? Effect.retry(open(path), Schedule.spaced(LISTENING_EVERY_MS))
      : open(path)
    const closed = yield* Deferred.make<void>()
    const greeted = yield* Deferred.make<void>()
    const waiting = new Map<number, Deferred.Deferred<Answer>>()
    let nextId = 1
    let shutdownReason: string | undefined

    const onLine = (line: string) => {
      const message = parse(line)
      if (message === undefined) return
      if ("QMP" in message) Deferred.doneUnsafe(greeted, Effect.void)
      if (message.event === "SHUTDOWN") {
        shutdownReason = text((message.data as { reason?: unknown } | undefined)?.reason)
      }
      const answered = typeof message.id === "number" ? waiting.get(message.id) : undefined
      if (answered === undefined) return
      const error = message.error as { desc?: unknown } | undefined
      Deferred.doneUnsafe(
        answered,
        Effect.succeed(error === undefined ? { return: message.return } : { error: text(error?.desc) })
      )
    }
    const split = lineSplitter(onLine)
    socket.on("data", (piece: Uint8Array) => {
      if (!split(piece)) socket.destroy()
    })
    socket.on("close", () => {
      Deferred.doneUnsafe(closed, Effect.void)
    })

    const bounded =
      (command: string) =>
      <A>(effect: Effect.Effect<A, QmpError>) =>
        Effect.raceFirst(
          effect,
          Deferred.await(closed).pipe(
            Effect.andThen(Effect.fail(new QmpError({ command, reason: "it hung up" })))
          )
        ).pipe(
          Effect.timeoutOrElse({
            duration: ANSWER_LIMIT_MS,
            orElse: () =>
              Effect.fail(
                new QmpError({ command, reason: `it said nothing for ${ANSWER_LIMIT_MS / 1000} s` })
              )
          })
        )

    const execute: Qmp["execute"] = (command, args) =>
      Effect.gen(function* () {
        const id = nextId++
        const answered = yield* Deferred.make<Answer>()
        waiting.set(id, answered)
        socket.write(
          `${JSON.stringify({ execute: command, id, ...(args === undefined ? {} : { arguments: args }) })}\n`
        )
        const answer = yield* Deferred.await(answered).pipe(
          bounded(command),
          Effect.ensuring(Effect.sync(() => waiting.delete(id)))
        )
        if ("error" in answer) return yield* new QmpError({ command, reason: answer.error })
        return answer.return
      })

    yield* Deferred.await(greeted).pipe(bounded("with its greeting"))
    yield* execute("qmp_capabilities")
    return { execute, closed, shutdownReason: () => shutdownReason }
  })
