/** Work that is done once, however many ask for it at the same time. */
import { Effect, Exit, Fiber, type Scope } from "effect"

interface Running<A, E> {
  readonly fiber: Fiber.Fiber<A, E>
  callers: number
}

/**
 * Gives a function that runs `work` under `key`, or joins the run that goes on already. A caller that is
 * interrupted leaves the work to the others; when the last one has left, the work is interrupted too.
 * Nothing is remembered once the work has ended. What still runs ends with the scope.
 */
export const makeSharedWork = <A, E>(): Effect.Effect<
  (key: string, work: Effect.Effect<A, E>) => Effect.Effect<A, E>,
  never,
  Scope.Scope
> =>
  Effect.map(Effect.scope, (scope) => {
    const running = new Map<string, Running<A, E>>()

    const join = (key: string, work: Effect.Effect<A, E>): Effect.Effect<Running<A, E>> =>
      Effect.suspend(() => {
        const present = running.get(key)
        if (present !== undefined) {
          present.callers += 1
          return Effect.succeed(present)
        }
        return work.pipe(
          Effect.interruptible,
          Effect.forkIn(scope),
          Effect.map((fiber) => {
            const entry: Running<A, E> = { fiber, callers: 1 }
            running.set(key, entry)
            fiber.addObserver(() => {
              if (running.get(key) === entry) running.delete(key)
            })
            return entry
          })
        )
      })

    const leave = (key: string, entry: Running<A, E>): Effect.Effect<void> =>
      Effect.suspend(() => {
        entry.callers -= 1
        if (entry.callers > 0) return Effect.void
        if (running.get(key) === entry) running.delete(key)
        return Fiber.interrupt(entry.fiber)
      })

    return (key, work) =>
      Effect.acquireUseRelease(
        join(key, work),
        (entry) => Fiber.join(entry.fiber),
        (entry, exit) => (Exit.hasInterrupts(exit) ? leave(key, entry) : Effect.void)
      )
  })
