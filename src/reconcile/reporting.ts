/** The one writer of `reported.json`: at most four times a second, at least once a minute. */
import { Deferred, Effect, Option, Queue } from "effect"
import { buildReport } from "../report/build.ts"
import { Reporter } from "../services/Reporter.ts"
import type { DocumentInForce } from "./document-watch.ts"
import type { HostContext } from "./host-context.ts"

const shortestPauseMs = 250
const longestPauseMs = 60_000

export interface ReporterOptions {
  readonly host: HostContext
  /** Something is worth a new report. */
  readonly changes: Queue.Dequeue<void>
  /** Done when every app that the daemon found at its start was looked at once. */
  readonly allLooked: Deferred.Deferred<void>
  readonly document: () => {
    readonly inForce: DocumentInForce | undefined
    readonly refusal: string | undefined
  }
}

export const runReporter = Effect.fnUntraced(function* ({
  host,
  changes,
  allLooked,
  document
}: ReporterOptions) {
  const reporter = yield* Reporter

  const write = Effect.gen(function* () {
    const report = buildReport({
      now: yield* Effect.clockWith((clock) => clock.currentTimeMillis),
      ready: yield* Deferred.isDone(allLooked),
      ...document(),
      vcpuCount: host.info.vcpuCount,
      memoryMib: host.limits.memoryMib,
      heldMemoryMib: yield* host.memory.held,
      disk: yield* host.info.disk,
      versions: {
        ...host.settings.versions,
        guestImage: host.guestImage.version,
        hypervisor: host.hypervisor.version
      },
      storagePrefix: host.settings.storagePrefix,
      apps: host.statuses
    })
    yield* reporter.write(report)
  }).pipe(Effect.catchTag("ReportError", (error) => Effect.logError(error.message)))

  // A restart of the daemon is no news to its readers until it has looked at what it found.
  yield* Deferred.await(allLooked).pipe(Effect.timeoutOption(longestPauseMs))
  while (true) {
    yield* write
    yield* Effect.sleep(shortestPauseMs)
    yield* Effect.asVoid(Queue.take(changes)).pipe(
      Effect.timeoutOption(longestPauseMs - shortestPauseMs),
      Effect.map(Option.isSome)
    )
  }
})
