/**
 * The clock of the meters: adds the time that passes, brings what is measured to the host's notes, and sees to it
 * that new measurements are reported. It waits for no guest.
 */
import { Clock, Effect, Schedule } from "effect"
import type { HostContext } from "./host-context.ts"

const passEveryMs = 5_000
const saveEveryMs = 20_000
/** Apps in one transaction. Nothing else happens in the daemon while one is written: some milliseconds. */
const savedAtOnce = 1_000
/** New measurements alone make no more reports than this. Meters that have only grown make none. */
const reportEveryMs = 15_000

/** Takes up what an earlier daemon has written down. */
export const loadMeters = Effect.fnUntraced(function* ({ state, measurements }: HostContext) {
  measurements.load(yield* state.meters)
})

/**
 * Runs until it is interrupted, and writes down what is not written yet when the scope closes.
 *
 * @param onNews run when guests have been measured since the last time
 */
export const runMetering = Effect.fnUntraced(function* (host: HostContext, onNews: Effect.Effect<void>) {
  const { state, measurements, statuses } = host
  let complained = false

  const pass = Effect.map(Clock.currentTimeMillis, (at) => measurements.pass(statuses, at))

  const save = Effect.gen(function* () {
    const { records, forgotten } = measurements.unsaved
    for (let at = 0; at < records.length || (at === 0 && forgotten.length > 0); at += savedAtOnce) {
      const part = { records: records.slice(at, at + savedAtOnce), forgotten: at === 0 ? forgotten : [] }
      yield* state.saveMeters(part.records, part.forgotten)
      measurements.saved(part)
    }
    complained = false
  }).pipe(
    Effect.catchTag("HostStateError", (error) => {
      if (complained) return Effect.void
      complained = true
      return Effect.logError(`${error.message}; the meters are kept in memory and written later`)
    })
  )

  const report = Effect.suspend(() => (measurements.takeNews() ? onNews : Effect.void))

  yield* Effect.addFinalizer(() => Effect.andThen(pass, save))
  const every = <A>(effect: Effect.Effect<A>, ms: number) => Effect.repeat(effect, Schedule.spaced(ms))
  yield* Effect.all([every(pass, passEveryMs), every(save, saveEveryMs), every(report, reportEveryMs)], {
    concurrency: "unbounded",
    discard: true
  })
})
