/** Finds an app's log and prints it. */
import { Console, Effect, Option, Schema, Stream } from "effect"
import { noSuchApp } from "../document/near-names.ts"
import { AppId } from "../document/schema.ts"
import { type LogRange, LogReader } from "../services/LogReader.ts"
import { printable } from "./printable.ts"
import { readReport, reportFile } from "./report-file.ts"

/** Neither the report nor the logs of this host know the app. */
export class NoSuchApp extends Schema.TaggedError<NoSuchApp>()("NoSuchApp", {
  app: Schema.String,
  known: Schema.Array(Schema.String)
}) {
  override get message() {
    return noSuchApp(this.app, this.known)
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
  if (Option.isNone(appId) || !known.includes(app)) return yield* new NoSuchApp({ app, known })
  if (!logged.includes(app) && !range.follow)
    return yield* Console.error(`app ${app} has printed nothing yet`)
  yield* reader
    .records(appId.value, range)
    .pipe(Stream.runForEachArray((records) => Console.log(records.map(printable).join("\n"))))
})
