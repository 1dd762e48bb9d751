/** The body of an answer as pieces to be taken, read ahead by a bounded amount. */
import type { Readable } from "node:stream"
import { Effect } from "effect"

/** What lies here unread at most, about. Bytes. */
const AHEAD = 2 << 20

export interface Body {
  /**
   * All pieces that have come since; waits for the first. None when the body has ended. Fails with the connection. One
   * at a time, and those of the time before are good no longer.
   */
  readonly take: Effect.Effect<ReadonlyArray<Uint8Array>, unknown>
  /** Ends the connection, unless all of the body has come. */
  readonly close: () => void
}

/**
 * Gives a piece's memory back now. Left to the collector it would run for every 20 MiB that come, over all that the
 * daemon has: more work than the hash. Only memory that is the piece's alone: that of another may still be read.
 */
const free = ({ buffer, byteLength }: Uint8Array): void => {
  if (buffer instanceof ArrayBuffer && byteLength > 0 && buffer.byteLength === byteLength) buffer.transfer(0)
}

/** Starts to read. */
export const readBody = (readable: Readable): Body => {
  let pieces: Array<Uint8Array> = []
  let waitingBytes = 0
  let lent: ReadonlyArray<Uint8Array> = []
  let end: Effect.Effect<ReadonlyArray<Uint8Array>, unknown> | undefined
  let wake: (() => void) | undefined

  const finish = (how: Effect.Effect<ReadonlyArray<Uint8Array>, unknown>) => {
    end ??= how
    wake?.()
  }
  readable.on("data", (piece: Uint8Array) => {
    pieces.push(piece)
    waitingBytes += piece.byteLength
    if (waitingBytes >= AHEAD) readable.pause()
    wake?.()
  })
  readable.once("end", () => finish(Effect.succeed([])))
  readable.on("error", (error) => finish(Effect.fail(error)))
  readable.once("close", () => finish(Effect.fail(new Error("the connection was closed"))))

  const ready = (): Effect.Effect<ReadonlyArray<Uint8Array>, unknown> | undefined => {
    lent.forEach(free)
    lent = []
    if (pieces.length === 0) return end
    const taken = pieces
    lent = taken
    pieces = []
    waitingBytes = 0
    if (readable.isPaused()) readable.resume()
    return Effect.succeed(taken)
  }

  return {
    take: Effect.callback((resume) => {
      const now = ready()
      if (now !== undefined) return resume(now)
      wake = () => {
        wake = undefined
        const then = ready()
        if (then !== undefined) resume(then)
      }
      return Effect.sync(() => {
        wake = undefined
      })
    }),
    close: () => {
      readable.destroy()
    }
  }
}
