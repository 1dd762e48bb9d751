/**
 * A guest's events on their way to who reads them, and what of them may be acknowledged: an event is when the reader has
 * taken it, so that what a dying daemon had not taken yet is told to the next.
 */
import { type Cause, Effect, Latch, Queue } from "effect"
import type { GuestEvent } from "../../../src/services/Guest.ts"

/** With records of up to 64 KiB, at most 2 MiB of a guest's output wait in the daemon. */
const CAPACITY = 32

export interface Events {
  readonly queue: Queue.Queue<GuestEvent, Cause.Done>
  /** Passes an event on, waiting for room; one that was seen before, or is of no known type, is only noted. */
  readonly accept: (sequence: number, event: GuestEvent | undefined) => Effect.Effect<void>
  /** The last sequence that has been dealt with; -1 before the first. */
  readonly dealtWith: () => number
  /** Waits while there is nothing that could be dealt with next. */
  readonly pending: Effect.Effect<void>
}

export const makeEvents: Effect.Effect<Events> = Effect.gen(function* () {
  const queue = yield* Queue.bounded<GuestEvent, Cause.Done>(CAPACITY)
  const waiting = yield* Latch.make(false)
  /** The sequences of what lies in the queue, and of what was taken since it was last looked at. */
  const sequences: Array<number> = []
  let seen = -1
  let dealt = -1

  const settle = () => {
    const taken = sequences.length - Queue.sizeUnsafe(queue)
    if (taken > 0) dealt = sequences.splice(0, taken).at(-1) ?? dealt
  }

  return {
    queue,
    accept: (sequence, event) =>
      Effect.gen(function* () {
        if (sequence <= seen) return
        seen = sequence
        if (event === undefined) {
          settle()
          if (sequences.length === 0) dealt = sequence
          else sequences[sequences.length - 1] = sequence
          return
        }
        yield* Queue.offer(queue, event)
        sequences.push(sequence)
        yield* waiting.open
      }),
    dealtWith: () => {
      settle()
      if (sequences.length === 0) waiting.closeUnsafe()
      return dealt
    },
    pending: waiting.await
  }
})
