/** Waiting for a host's report to say something. */
import { readFileSync } from "node:fs"
import { type Duration, Effect, Schema } from "effect"
import { HostReport, type InstanceReport } from "../../src/report/schema.ts"
import type { LocalHost } from "./host.ts"
import { attempt, Problem } from "./problem.ts"

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(HostReport))

/** The report as it stands; fails while there is none. */
export const readReport = (host: LocalHost): Effect.Effect<HostReport, Problem> =>
  attempt(`the report ${host.reported} cannot be read`, () => readFileSync(host.reported, "utf8")).pipe(
    Effect.flatMap((text) => decode(text)),
    Effect.catchTag(
      "SchemaError",
      (error) => new Problem({ message: `the report ${host.reported} is not one: ${error.message}` })
    )
  )

export const instanceOf = (report: HostReport, appId: string): InstanceReport | undefined =>
  report.instances.find((instance) => instance.appId === appId)

/**
 * Waits until `look` finds in the report what it looks for, and gives it. `look` may fail: then what is waited for
 * can no longer come. A report that an earlier daemon wrote is not looked at (`since`: ms since 1970).
 */
export const awaitReport = <A>(
  host: LocalHost,
  what: string,
  since: number,
  look: (report: HostReport) => A | undefined | Problem,
  limit: Duration.Input = "3 minutes"
): Effect.Effect<A, Problem> => {
  const poll: Effect.Effect<A, Problem> = Effect.gen(function* () {
    for (;;) {
      const report = yield* readReport(host).pipe(Effect.option)
      if (report._tag === "Some" && Date.parse(report.value.reportedAt) >= since) {
        const found = look(report.value)
        if (found instanceof Problem) return yield* found
        if (found !== undefined) return found
      }
      yield* Effect.sleep("25 millis")
    }
  })
  return poll.pipe(
    Effect.timeoutOrElse({
      duration: limit,
      orElse: () => new Problem({ message: `the host did not report in time: ${what}` })
    })
  )
}
