/** Finding and reading this host's `config.toml`. */
import { Effect, Result, Schema } from "effect"
import { readBoundedText } from "./bounded-file.ts"
import { environmentVariable } from "./environment.ts"

/** Where the configuration lies unless `NIBRUNNER_CONFIG` says otherwise. */
export const DEFAULT_CONFIG_FILE = "/etc/nibrunner/config.toml"

/** There is no configuration to read. */
export class ConfigUnreadable extends Schema.TaggedError<ConfigUnreadable>()("ConfigUnreadable", {
  file: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the configuration ${this.file} cannot be read: ${this.reason}. NIBRUNNER_CONFIG names another file`
  }
}

/** The configuration is not what a host can be. */
export class ConfigNotValid extends Schema.TaggedError<ConfigNotValid>()("ConfigNotValid", {
  file: Schema.String,
  /** The first problem, with its place. */
  problem: Schema.String,
  problems: Schema.Int
}) {
  override get message() {
    const more = this.problems - 1
    const rest = more === 0 ? "" : `, and ${more} more problem${more === 1 ? "" : "s"}`
    return `the configuration is refused: ${this.problem}${rest}. nibrunnerd check ${this.file} shows ${more === 0 ? "its line" : "them all"}`
  }
}

/** The configuration's path: `NIBRUNNER_CONFIG` when it is set and not blank, else the default. */
export const configFile = Effect.map(environmentVariable("NIBRUNNER_CONFIG"), (path) =>
  path.trim() === "" ? DEFAULT_CONFIG_FILE : path
)

/** Reads the configuration in a file, or refuses it by its first problem. */
export const readConfigAt = Effect.fnUntraced(function* (file: string) {
  const text = yield* readBoundedText(file).pipe(
    Effect.mapError(({ reason }) => new ConfigUnreadable({ file, reason }))
  )
  // Loaded where it is needed: most commands read no configuration.
  const { decodeConfig } = yield* Effect.promise(() => import("../config/decode.ts"))
  const decoded = decodeConfig(text, file)
  if (Result.isSuccess(decoded)) return { file, config: decoded.success }
  const { issues } = decoded.failure
  const first = issues[0]
  return yield* new ConfigNotValid({
    file,
    problem: first === undefined ? file : `${file}:${first.line}:${first.column}: ${first.message}`,
    problems: issues.length
  })
})

/** Reads this host's configuration, or refuses it by its first problem. */
export const readConfig = Effect.flatMap(configFile, readConfigAt)
