/** The one writer of `reported.json`: at most four times a second, at least once a minute. */
import { Clock, Deferred, Effect, Option, Queue } from "effect"
import { makeReportEncoder } from "../report/encode.ts"
import { HostDirectories } from "../services/HostDirectories.ts"
import { Reporter } from "../services/Reporter.ts"
import { type HostStatusOptions, hostStatus } from "./host-status.ts"
import { lostDirectory } from "./lost-directories.ts"

const shortestPauseMs = 250
const longestPauseMs = 60_000
/** Changes come in bursts: what follows within this time goes into the same report. */
const settleMs = 20

/** Logs each sentence once for as long as it holds, and `over` when none holds any more. */
const sayingNews = (over: string) => {
  let before: ReadonlyArray<string> = []
  return (now: ReadonlyArray<string>): Effect.Effect<unknown> =>
    Effect.suspend(() => {
      const news = now.filter((sentence) => !before.includes(sentence))
      const isOver = before.length > 0 && now.length === 0
      before = now
      return isOver ? Effect.logInfo(over) : Effect.forEach(news, (sentence) => Effect.logError(sentence))
    })
}

export interface ReporterOptions extends HostStatusOptions {
  /** Something is worth a new report. */
  readonly changes: Queue.Dequeue<void>
}

export const runReporter = Effect.fnUntraced(function* ({ changes, ...options }: ReporterOptions) {
  const reporter = yield* Reporter
  const directories = yield* HostDirectories
  const { host, allLooked } = options
  const encode = makeReportEncoder()

  const sayDirectories = sayingNews("the directories of the host are again those that the daemon began with")
  const sayReport = sayingNews("the report is written again")

  const write = Effect.gen(function* () {
    host.lostDirectories = (yield* directories.lost).map(lostDirectory)
    yield* sayDirectories(host.lostDirectories)
    yield* reporter.write(encode(yield* hostStatus(options)))
    yield* sayReport([])
    yield* host.metrics.reportWritten(yield* Clock.currentTimeMillis)
  }).pipe(Effect.catchTag("ReportError", (error) => sayReport([error.message])))

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
