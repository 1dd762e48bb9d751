/** The daemon's own log: one JSON object a line, on stderr. */
import { Cause, Console, Effect, Logger, References } from "effect"
import { environmentVariable } from "./environment.ts"

/** `NIBRUNNER_LOG`: debug, info, warn or error; anything else is info. */
export const logLevel = environmentVariable("NIBRUNNER_LOG").pipe(
  Effect.map((name) => {
    switch (name.trim().toLowerCase()) {
      case "debug":
        return "Debug" as const
      case "warn":
        return "Warn" as const
      case "error":
        return "Error" as const
      default:
        return "Info" as const
    }
  })
)

const text = (message: unknown): string => {
  const parts = Array.isArray(message) ? message : [message]
  return parts
    .map((part) =>
      typeof part === "string" ? part : part instanceof Error ? part.message : JSON.stringify(part)
    )
    .join(" ")
}

/** `time`, `level`, `message`, the annotations, and `cause` when something died. */
export const jsonLines = Logger.make((options) => {
  const annotations = options.fiber.getRef(References.CurrentLogAnnotations)
  const cause = options.cause.reasons.length > 0 ? { cause: Cause.pretty(options.cause) } : {}
  const line = JSON.stringify({
    time: options.date.toISOString(),
    level: options.logLevel.toLowerCase(),
    message: text(options.message),
    ...annotations,
    ...cause
  })
  options.fiber.getRef(Console.Console).error(line)
})
