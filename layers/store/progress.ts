/** Progress that is told at most once a second. */
import { Clock, Effect } from "effect"

const INTERVAL_MS = 1000

/** Gives a function that runs `tell` when a second has passed since it last did; the first call runs it. */
export const makeThrottled = <A>(tell: (value: A) => Effect.Effect<void>) => {
  let next = 0
  return (value: A): Effect.Effect<void> =>
    Effect.flatMap(Clock.currentTimeMillis, (now) => {
      if (now < next) return Effect.void
      next = now + INTERVAL_MS
      return tell(value)
    })
}
