/** A conversation over a unix socket, in which one end waits for the other's words. */
import { createConnection } from "node:net"
import { Effect, Schema, type Scope } from "effect"

/** ZeroFS does not answer on a socket, or answers what makes no sense. `reason` is a clause that names the socket. */
export class NoAnswer extends Schema.TaggedError<NoAnswer>()("NoAnswer", {
  socketPath: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

export interface Conversation {
  readonly socketPath: string
  readonly send: (bytes: Uint8Array) => Effect.Effect<void>
  /** Exactly so many bytes. One reader at a time. */
  readonly receive: (length: number) => Effect.Effect<Buffer, NoAnswer>
}

const problems: Readonly<Record<string, string>> = {
  ENOENT: "there is no such socket",
  ECONNREFUSED: "nobody listens there",
  EACCES: "the daemon may not connect to it"
}

/** Connects. The connection ends with the scope. */
export const converse = (socketPath: string): Effect.Effect<Conversation, NoAnswer, Scope.Scope> =>
  Effect.gen(function* () {
    const noAnswer = (reason: string) =>
      new NoAnswer({ socketPath, reason: `ZeroFS does not answer on ${socketPath}: ${reason}` })
    let received: Array<Buffer> = []
    let available = 0
    let end: NoAnswer | undefined
    let wake: (() => void) | undefined
    const socket = yield* Effect.acquireRelease(
      Effect.sync(() => createConnection({ path: socketPath })),
      (open) => Effect.sync(() => open.destroy())
    )
    const ended = (problem: NoAnswer) => {
      end ??= problem
      wake?.()
    }
    socket.on("data", (chunk) => {
      received.push(chunk)
      available += chunk.length
      wake?.()
    })
    socket.on("error", (error: NodeJS.ErrnoException) =>
      ended(noAnswer(problems[error.code ?? ""] ?? error.message))
    )
    socket.on("close", () => ended(noAnswer("it hung up")))

    yield* Effect.callback<void, NoAnswer>((resume) => {
      const settle = () => resume(end === undefined ? Effect.void : Effect.fail(end))
      wake = settle
      socket.once("connect", settle)
    })
    wake = undefined

    const take = (length: number): Buffer => {
      const all = received.length === 1 && received[0] !== undefined ? received[0] : Buffer.concat(received)
      const rest = all.subarray(length)
      received = rest.length === 0 ? [] : [rest]
      available = rest.length
      return all.subarray(0, length)
    }

    return {
      socketPath,
      send: (bytes) => Effect.sync(() => void socket.write(bytes)),
      receive: (length) =>
        Effect.callback<Buffer, NoAnswer>((resume) => {
          const look = () => {
            const problem = end
            if (available < length && problem === undefined) return
            // before the fiber goes on: it may wait for the next words at once
            wake = undefined
            if (available >= length) resume(Effect.succeed(take(length)))
            else if (problem !== undefined) resume(Effect.fail(problem))
          }
          wake = look
          look()
          return Effect.sync(() => {
            wake = undefined
          })
        })
    }
  })

/** What does not come in time is as good as no answer. */
export const within =
  (seconds: number, socketPath: string) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E | NoAnswer, R> =>
    Effect.timeoutOrElse(effect, {
      duration: seconds * 1000,
      orElse: () =>
        Effect.fail(
          new NoAnswer({ socketPath, reason: `ZeroFS did not answer on ${socketPath} within ${seconds} s` })
        )
    })
