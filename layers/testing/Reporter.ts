/** A reporter that keeps every report. */
import { Deferred, Effect, Layer } from "effect"
import type { HostReport } from "../../src/report/schema.ts"
import { type ReportError, Reporter } from "../../src/services/Reporter.ts"
import { Script } from "./Script.ts"

interface Waiter {
  readonly predicate: (report: HostReport) => boolean
  readonly found: Deferred.Deferred<HostReport>
}

/** What outlives the layer, as a disk does. */
export interface ReporterWorld {
  /** Every report that was written, oldest first. */
  readonly reports: Array<HostReport>
  readonly waiters: Set<Waiter>
  readonly script: Script<{ write: ReportError }>
}

export const makeReporterWorld = (): ReporterWorld => ({
  reports: [],
  waiters: new Set(),
  script: new Script()
})

/** The report that is in force now; undefined before the first. */
export const lastReport = (world: ReporterWorld): HostReport | undefined => world.reports.at(-1)

/** The report in force if it satisfies the predicate, else the next one that does. Waits for ever. */
export const awaitReport = (
  world: ReporterWorld,
  predicate: (report: HostReport) => boolean
): Effect.Effect<HostReport> =>
  Effect.suspend(() => {
    const last = lastReport(world)
    return last !== undefined && predicate(last) ? Effect.succeed(last) : awaitNextReport(world, predicate)
  })

/** The next report, from now on, that satisfies the predicate. Waits for ever. */
export const awaitNextReport = (
  world: ReporterWorld,
  predicate: (report: HostReport) => boolean = () => true
): Effect.Effect<HostReport> =>
  Effect.suspend(() => {
    const waiter: Waiter = { predicate, found: Deferred.makeUnsafe() }
    world.waiters.add(waiter)
    return Deferred.await(waiter.found).pipe(Effect.ensuring(Effect.sync(() => world.waiters.delete(waiter))))
  })

export const layerReporterMemory = (world: ReporterWorld) =>
  Layer.succeed(Reporter, {
    write: (text) =>
      world.script.around(
        "write",
        "",
        Effect.sync(() => {
          const report = JSON.parse(text) as HostReport
          world.reports.push(report)
          for (const waiter of world.waiters) {
            if (waiter.predicate(report)) Deferred.doneUnsafe(waiter.found, Effect.succeed(report))
          }
        })
      )
  })
