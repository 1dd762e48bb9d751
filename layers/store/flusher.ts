/** Flushing beside a transfer. */
import { Effect, Fiber } from "effect"
import type { FileProblem } from "../files/problem.ts"

/** After so many bytes the disk is told to take them, so that it works while more come and little is left at the end. */
const FLUSH_EVERY = 32 << 20

/** Gives a function that counts bytes and flushes beside the transfer, one flush at a time; what a flush fails with, the next count does. */
export const makeFlusher = (datasync: Effect.Effect<void, FileProblem>) => {
  let unflushed = 0
  let running: Fiber.Fiber<void, FileProblem> | undefined
  return Effect.fnUntraced(function* (more: number) {
    unflushed += more
    if (unflushed < FLUSH_EVERY) return
    if (running !== undefined && running.pollUnsafe() === undefined) return
    if (running !== undefined) yield* Fiber.join(running)
    unflushed = 0
    running = yield* Effect.forkScoped(datasync)
  })
}
