/** The one writer of `reported.json`: at most four times a second, at least once a minute. */
import { Clock, Deferred, Effect, Option, Queue } from "effect"
import { makeReportEncoder } from "../report/encode.ts"
import { Reporter } from "../services/Reporter.ts"
import { type HostStatusOptions, hostStatus } from "./host-status.ts"

const shortestPauseMs = 250
const longestPauseMs = 60_000
/** Changes come in bursts: what follows within this time goes into the same report. */
const settleMs = 20

export interface ReporterOptions extends HostStatusOptions {
  /** Something is worth a new report. */
  readonly changes: Queue.Dequeue<void>
}

export const runReporter = Effect.fnUntraced(function* ({ changes, ...options }: ReporterOptions) {
  const reporter = yield* Reporter
  const { host, allLooked } = options
  const encode = makeReportEncoder()

  const write = Effect.gen(function* () {
    yield* reporter.write(encode(yield* hostStatus(options)))
    yield* host.metrics.reportWritten(yield* Clock.currentTimeMillis)
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
    yield* Effect.sleep(settleMs)
  }
})
