/** `reported.json`: the one place where the host says what became of everything. */
import { Context, type Effect, Schema } from "effect"

export class ReportError extends Schema.TaggedError<ReportError>()("ReportError", {
  path: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the report ${this.path} cannot be written: ${this.reason}`
  }
}

export class Reporter extends Context.Service<
  Reporter,
  {
    /**
     * Replaces the report as a whole: a reader sees the old one or the new one, never a part.
     *
     * @param text a `HostReport` as JSON
     */
    readonly write: (text: string) => Effect.Effect<void, ReportError>
  }
>()("nibrunner/services/Reporter") {}
