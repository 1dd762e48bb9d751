/** Reading `reported.json` as the daemon has written it. */
import { Effect, Result, Schema } from "effect"
import { HostReport } from "../report/schema.ts"
import { readBoundedText } from "./bounded-file.ts"

/** There is no report, or it is none. */
export class ReportUnreadable extends Schema.TaggedError<ReportUnreadable>()("ReportUnreadable", {
  path: Schema.String,
  reason: Schema.String,
  /** There is no such file. */
  missing: Schema.Boolean
}) {
  override get message() {
    return `the report ${this.path} cannot be read: ${this.reason}`
  }

  /** The same where it is known whether a daemon runs. */
  told(daemonRuns: boolean): ReportUnreadable {
    const reason = daemonRuns
      ? "there is no such file yet. The daemon runs; its log says what it is at"
      : "there is no such file, and no daemon runs on this host"
    return new ReportUnreadable({ ...this, reason })
  }
}

const decode = Schema.decodeUnknownResult(HostReport)

/** Where the daemon of this configuration reports. */
export const reportFile = (stateDir: string): string => `${stateDir}/reported.json`

/** Fails with the sentence for who asked. */
export const readReport = Effect.fnUntraced(function* (path: string) {
  const unreadable = (reason: string, missing = false) => new ReportUnreadable({ path, reason, missing })
  const text = yield* readBoundedText(path).pipe(
    Effect.mapError(({ missing, reason }) =>
      missing
        ? unreadable("there is no such file. Has the daemon run on this host?", true)
        : unreadable(reason)
    )
  )
  const value = yield* Effect.try({
    try: (): unknown => JSON.parse(text),
    // The parser's own message quotes the text.
    catch: () => unreadable("it is not JSON")
  })
  const report = decode(value)
  return Result.isSuccess(report)
    ? { text, report: report.success }
    : yield* unreadable("it is none that this version of nibrunnerd knows")
})
