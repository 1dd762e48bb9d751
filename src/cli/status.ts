/** `nibrunnerd status`: what the host reports, as a table. */
import { Console, Effect, FileSystem, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import type { HostReport } from "../report/schema.ts"
import { readConfig } from "./config-file.ts"

/** There is no report, or it is none. */
export class ReportUnreadable extends Schema.TaggedError<ReportUnreadable>()("ReportUnreadable", {
  path: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the report ${this.path} cannot be read: ${this.reason}. Has the daemon run on this host?`
  }
}

const readReport = Effect.gen(function* () {
  const { config } = yield* readConfig
  const path = `${config.paths.state_dir}/reported.json`
  const files = yield* FileSystem.FileSystem
  const unreadable = (reason: string) => new ReportUnreadable({ path, reason })
  const text = yield* files
    .readFileString(path)
    .pipe(
      Effect.mapError((error) =>
        unreadable(error.reason._tag === "NotFound" ? "there is no such file" : error.message)
      )
    )
  const report = yield* Effect.try({
    try: () => JSON.parse(text) as HostReport,
    catch: () => unreadable("it is not JSON")
  })
  return { text, report }
})

/** Nothing that a guest or a document has said may steer the terminal. */
const printable = (text: string): string => text.replaceAll(/[\x00-\x1f\x7f-\x9f]/gu, "�")

const columns = (rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => (row[column] ?? "").length))
  )
  return rows
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd()
    )
    .join("\n")
}

/** The report as lines for a person. */
export const renderStatus = (report: HostReport): string => {
  const head = `host ${report.hostId} is ${report.state}; reported at ${report.reportedAt}`
  const refused = report.message === null ? [] : [printable(report.message)]
  const instances = report.instances.map((instance) => [
    instance.appId,
    instance.state,
    instance.startedAt ?? "-",
    String(instance.restartCount),
    instance.hostPort === undefined ? "-" : String(instance.hostPort),
    printable(instance.message ?? "")
  ])
  const volumes = report.volumes
    .filter(({ state, message }) => state !== "ready" || message !== undefined)
    .map((volume) => [volume.volumeId, volume.appId, volume.state, printable(volume.message ?? "")])
  const table =
    instances.length === 0
      ? ["no apps"]
      : [columns([["APP", "STATE", "SINCE", "RESTARTS", "PORT", "MESSAGE"], ...instances])]
  const rest = volumes.length === 0 ? [] : ["", columns([["VOLUME", "APP", "STATE", "MESSAGE"], ...volumes])]
  return [head, ...refused, "", ...table, ...rest].join("\n")
}

export const status = Command.make(
  "status",
  {
    json: Flag.Boolean("json").pipe(
      Flag.withDefault(false),
      Flag.withDescription("Print the report as it stands in reported.json.")
    )
  },
  Effect.fn(function* ({ json }) {
    const { text, report } = yield* readReport
    yield* Console.log(json ? text.trimEnd() : renderStatus(report))
  })
).pipe(Command.withDescription("Show what this host reports of its apps and volumes."))
