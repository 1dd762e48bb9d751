/** What apps have printed, for one who reads it. */
import { Context, type Effect, Schema, type Stream } from "effect"
import type { AppId } from "../document/schema.ts"

/** A log cannot be read. */
export class LogUnreadable extends Schema.TaggedError<LogUnreadable>()("LogUnreadable", {
  reason: Schema.String
}) {
  override get message() {
    return `the log cannot be read: ${this.reason}`
  }
}

export interface LogRange {
  /** How many of the newest records, 0 or more; all of both files when there are fewer. */
  readonly last: number
  /** Go on with what is written from now on, until interrupted: through rotation, and through the log's removal. */
  readonly follow: boolean
}

export class LogReader extends Context.Service<
  LogReader,
  {
    /** The apps that have a log. */
    readonly apps: Effect.Effect<ReadonlyArray<string>, LogUnreadable>
    /** Records, oldest first, without their newline. None for an app that has no log. */
    readonly records: (appId: AppId, range: LogRange) => Stream.Stream<string, LogUnreadable>
  }
>()("nibrunner/services/LogReader") {}
