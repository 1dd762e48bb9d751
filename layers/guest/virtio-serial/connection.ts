/** A connection to a unix socket, read piece by piece at the reader's pace. */
import { createConnection } from "node:net"
import { Effect, type Scope } from "effect"

export interface Connection {
  /** The next bytes; undefined when the other end has hung up. Nothing is read ahead of it but one buffer. */
  readonly read: Effect.Effect<Uint8Array | undefined>
  /** Written behind what was written before; into nothing when the other end has hung up. */
  readonly write: (bytes: Uint8Array) => void
  /** Bytes that the other end has not taken yet. */
  readonly unsent: () => number
}

/** Connects; fails with the reason. Hangs up when the scope closes. */
export const openConnection = (path: string): Effect.Effect<Connection, string, Scope.Scope> =>
  Effect.gen(function* () {
    const socket = yield* Effect.acquireRelease(
      Effect.sync(() => createConnection({ path })),
      (socket) => Effect.sync(() => socket.destroy())
    )
    let closed = false
    let failure: string | undefined
    socket.on("error", (error) => {
      failure = error.message
    })
    socket.on("close", () => {
      closed = true
    })
    yield* Effect.callback<void, string>((resume) => {
      socket.once("connect", () => resume(Effect.void))
      socket.once("close", () => resume(Effect.fail(failure ?? "it hung up at once")))
    })

    const take = (): Uint8Array | undefined => (socket.read() as Buffer | null) ?? undefined
    const read = Effect.callback<Uint8Array | undefined>((resume) => {
      const look = () => {
        const piece = take()
        if (piece === undefined && !closed && !socket.readableEnded) return
        socket.off("readable", look).off("end", look).off("close", look)
        resume(Effect.succeed(piece))
      }
      socket.on("readable", look).on("end", look).on("close", look)
      look()
      return Effect.sync(() => socket.off("readable", look).off("end", look).off("close", look))
    })
    return {
      read,
      write: (bytes) => {
        if (!closed) socket.write(bytes)
      },
      unsent: () => socket.writableLength
    }
  })
