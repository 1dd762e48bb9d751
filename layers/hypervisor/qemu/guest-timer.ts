/**
 * The timer of an emulated guest. Its kernel measures it as it boots, against the TSC and within a tenth of a second: should
 * the host's cores be busy with something else just then, the measure is wrong for good. Timers are late by whatever it is
 * too much; measured as almost nothing, the timer is not used at all, and whoever waits for time waits for ever.
 */
import { Effect, Option } from "effect"
import type { Console } from "./console.ts"
import type { Qmp, QmpError } from "./qmp.ts"

/** What QEMU's timer counts in a microsecond. */
const TRUE_MHZ = 1_000
/** A timer that is early is set once more for the rest, and costs that; one that is late is late. */
const GOOD_MHZ = { from: 0.8 * TRUE_MHZ, to: 1.05 * TRUE_MHZ }
/** Of a host that is so busy that none is good the last is taken. */
const MEASURES = 20
/** A guest that has not measured by then is past it, as one is that an earlier daemon has booted. */
const MEASURE_MS = 120_000

/** The kernel's words, with `apic=verbose` on its command line. */
const MEASURED = /host bus clock speed is (\d+\.\d+) MHz/gu

/** What the kernel has measured so far, in MHz: once for each boot. */
export const measuredMhz = (console: string): ReadonlyArray<number> =>
  Array.from(console.matchAll(MEASURED), ([, mhz]) => Number(mhz))

export const isGoodMhz = (mhz: number): boolean => mhz >= GOOD_MHZ.from && mhz <= GOOD_MHZ.to

const onReboot = (qmp: Qmp, reboot: "reset" | "shutdown") => qmp.execute("set-action", { reboot })

/** The machine begins anew; any other reboot is its end. */
const restart = (qmp: Qmp) =>
  onReboot(qmp, "reset").pipe(
    Effect.andThen(qmp.execute("system_reset")),
    Effect.ensuring(Effect.ignore(onReboot(qmp, "shutdown"))),
    Effect.uninterruptible
  )

/**
 * Has a machine that boots begin anew until its kernel has measured its timer well. Nothing of the app runs by then. Ends
 * when nothing is measured any more.
 */
export const untilTimerIsGood = (
  appId: string,
  qmp: Qmp,
  console: Pick<Console, "until">
): Effect.Effect<void, QmpError> =>
  Effect.gen(function* () {
    // An earlier daemon may have died in the middle of a restart.
    yield* onReboot(qmp, "shutdown")
    for (let measures = 0; measures < MEASURES; measures++) {
      const measured = yield* console
        .until((text) => measuredMhz(text)[measures])
        .pipe(Effect.timeoutOption(MEASURE_MS))
      if (Option.isNone(measured) || isGoodMhz(measured.value)) return
      const mhz = measured.value
      if (measures < MEASURES - 1) {
        yield* Effect.logDebug(
          `the timer of its guest counts ${TRUE_MHZ} MHz and was measured as ${mhz}: it boots anew`
        )
        yield* restart(qmp)
      } else
        yield* Effect.logWarning(
          `the guest of ${appId} could not measure its timer, as this host is too busy: it may be late, or stand still`
        )
    }
  })
