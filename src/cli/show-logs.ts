/** Finds an app's log and prints it. */
import { Console, Effect, Option, Schema, Stream } from "effect"
import { AppId } from "../document/schema.ts"
import { type LogRange, LogReader } from "../services/LogReader.ts"
import { nearNames, orList } from "./near.ts"
import { printable } from "./printable.ts"
import { readReport, reportFile } from "./report-file.ts"

/** Neither the report nor the logs of this host know the app. */
export class NoSuchApp extends Schema.TaggedError<NoSuchApp>()("NoSuchApp", {
  app: Schema.String,
  near: Schema.Array(Schema.String),
  known: Schema.Int
}) {
  override get message() {
    const hint =
      this.near.length > 0
        ? `Did you mean ${orList(this.near)}?`
        : this.known === 0
          ? "It knows no app yet"
          : `nibrunnerd status shows the ${this.known} that it knows`
    return `this host knows no app ${JSON.stringify(this.app)}. ${hint}`
  }
}

const decodeAppId = Schema.decodeUnknownOption(AppId)

/** The apps that the host reports; none when it reports nothing. */
const reported = (stateDir: string) =>
  readReport(reportFile(stateDir)).pipe(
    Effect.map(({ report }) => report.instances.map(({ appId }) => appId as string)),
    Effect.orElseSucceed((): ReadonlyArray<string> => [])
  )

export const showLogs = Effect.fnUntraced(function* (app: string, range: LogRange, stateDir: string) {
  const reader = yield* LogReader
  const logged = yield* reader.apps
  // An app that has no log yet may have printed nothing so far.
  const known = logged.includes(app) ? logged : [...new Set([...logged, ...(yield* reported(stateDir))])]
  const appId = decodeAppId(app)
  if (Option.isNone(appId) || !known.includes(app))
    return yield* new NoSuchApp({ app, near: nearNames(app, known), known: known.length })
  if (!logged.includes(app) && !range.follow)
    return yield* Console.error(`app ${app} has printed nothing yet`)
  yield* reader
    .records(appId.value, range)
    .pipe(Stream.runForEachArray((records) => Console.log(records.map(printable).join("\n"))))
})
