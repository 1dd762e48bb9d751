/** How an object of unknown length is cut into the parts of a multipart upload, in a bounded number of buffers. */
import { Cause, Effect, Pull, Queue, Stream } from "effect"

const MIB = 2 ** 20
/** S3's limits. */
const MAX_PARTS = 10_000
const MIN_PART_BYTES = 5 * MIB
/** Without an expected size. */
const PART_BYTES = 16 * MIB
/** What parts under way may take together, as long as it is one at least. */
const MEMORY_BYTES = 48 * MIB
/** An expected size is exceeded by so much at most before parts run out. */
const MARGIN = 1.1

export interface PartsPlan {
  /** All parts have it but the last: some stores want it so. */
  readonly partBytes: number
  readonly maxParts: number
  /** Parts under way at the same time. */
  readonly concurrency: number
}

/** Parts for an object of about so many bytes. */
export const planParts = (expectedBytes = 0): PartsPlan => {
  const needed = Math.ceil((expectedBytes * MARGIN) / MAX_PARTS / MIB) * MIB
  const partBytes = Math.max(PART_BYTES, MIN_PART_BYTES, needed)
  return {
    partBytes,
    maxParts: MAX_PARTS,
    concurrency: Math.max(1, Math.floor(MEMORY_BYTES / partBytes))
  }
}

export interface Part {
  /** From 1. */
  readonly number: number
  readonly bytes: Uint8Array
  /** Whether this is all of the object. */
  readonly only: boolean
  /** Gives the part's buffer back; the bytes are not to be used any more. */
  readonly release: () => void
}

/**
 * Cuts a stream into parts, however its pieces are cut. There is one buffer more than parts may be under way: who
 * is slow to release holds the stream up. An empty stream is one empty part.
 */
export const inParts =
  <F>(plan: PartsPlan, tooMany: F) =>
  <E, R>(contents: Stream.Stream<Uint8Array, E, R>): Stream.Stream<Part, E | F, R> =>
    Stream.transformPull(contents, (upstream) =>
      Effect.gen(function* () {
        const free = yield* Queue.unbounded<Buffer | undefined>()
        for (let n = 0; n <= plan.concurrency; n++) yield* Queue.offer(free, undefined)
        const source = makeSource(upstream)
        let buffer: Buffer | undefined
        let filled = 0
        let number = 0
        let over = false

        const emit = (only: boolean) =>
          Effect.suspend((): Effect.Effect<readonly [Part], F> => {
            if (number === plan.maxParts) return Effect.fail(tooMany)
            const full = buffer ?? Buffer.alloc(0)
            const bytes = full.subarray(0, filled)
            buffer = undefined
            filled = 0
            number += 1
            const release = () => {
              if (full.length > 0) Queue.offerUnsafe(free, full)
            }
            return Effect.succeed([{ number, bytes, only, release }])
          })

        return Effect.gen(function* () {
          while (yield* source.hasMore) {
            // Only now is it certain that a full one is not the last.
            if (filled === plan.partBytes) return yield* emit(false)
            buffer ??= (yield* Queue.take(free)) ?? Buffer.allocUnsafeSlow(plan.partBytes)
            filled += source.copyTo(buffer.subarray(filled))
          }
          if (over) return yield* Cause.done()
          over = true
          return yield* emit(number === 0)
        })
      })
    )

/** The bytes of a stream, to be copied from. */
const makeSource = <E>(upstream: Pull.Pull<ReadonlyArray<Uint8Array>, E>) => {
  let pieces: ReadonlyArray<Uint8Array> = []
  let index = 0
  /** How far the piece at `index` is taken. */
  let taken = 0
  let ended = false

  const skipEmpty = () => {
    while (index < pieces.length && taken === pieces[index]?.byteLength) {
      index += 1
      taken = 0
    }
  }

  return {
    /** Whether there is a byte; waits for it. */
    hasMore: Effect.gen(function* () {
      skipEmpty()
      while (index >= pieces.length) {
        if (ended) return false
        const next = yield* Pull.catchDone(upstream, () => Effect.succeed(undefined))
        ended = next === undefined
        pieces = next ?? []
        index = 0
        skipEmpty()
      }
      return true
    }),
    /** Takes what fits of what has come, and gives how many bytes that were. */
    copyTo: (target: Uint8Array): number => {
      let copied = 0
      while (index < pieces.length && copied < target.byteLength) {
        const some =
          pieces[index]?.subarray(taken, taken + target.byteLength - copied) ?? target.subarray(0, 0)
        target.set(some, copied)
        copied += some.byteLength
        taken += some.byteLength
        skipEmpty()
      }
      return copied
    }
  }
}
