/** Machines that QEMU has stopped since a volume could not be read or written: the guest waits, and sees no error. */
import { Effect } from "effect"
import type { Qmp, QmpError } from "./qmp.ts"

const LOOK_EVERY_MS = 2_000
/** A request that fails is repeated ever more seldom. */
const LONGEST_WAIT_MS = 15_000

/**
 * Has the machine go on, and repeat what failed, until it succeeds: a server that is back, or a disk that has room again, is
 * all that it takes. Ends when QEMU does.
 *
 * @param volume told what the last look has found
 */
export const resumeAfterIoErrors = (
  appId: string,
  qmp: Qmp,
  state: Effect.Effect<string, QmpError>,
  volume: { failing: boolean }
): Effect.Effect<void, QmpError> =>
  Effect.gen(function* () {
    let wait = LOOK_EVERY_MS
    while (true) {
      yield* Effect.sleep(wait)
      const failing = (yield* state) === "io-error"
      if (failing) yield* qmp.execute("cont")
      const before = volume.failing
      volume.failing = failing
      if (failing && !before)
        yield* Effect.logWarning(`the volume of ${appId} gives errors: its guest waits until it can be used`)
      if (!failing && before) yield* Effect.logInfo(`the guest of ${appId} goes on: its volume can be used`)
      wait = failing ? Math.min(wait * 2, LONGEST_WAIT_MS) : LOOK_EVERY_MS
    }
  })
