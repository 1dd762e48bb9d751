/** Finding and reading this host's `config.toml`. */
import { Config, Effect, FileSystem, Result, Schema } from "effect"
import { decodeConfig } from "../config/decode.ts"

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

/** The configuration's path: `NIBRUNNER_CONFIG` when it is set and not blank, else the default. */
export const configFile = Config.String("NIBRUNNER_CONFIG").pipe(
  Config.withDefault(""),
  Effect.map((path) => (path.trim() === "" ? DEFAULT_CONFIG_FILE : path)),
  Effect.orDie
)

/** Reads this host's configuration, or refuses it with all its problems. */
export const readConfig = Effect.gen(function* () {
  const file = yield* configFile
  const files = yield* FileSystem.FileSystem
  const text = yield* files.readFileString(file).pipe(
    Effect.mapError(
      (error) =>
        new ConfigUnreadable({
          file,
          reason: error.reason._tag === "NotFound" ? "there is no such file" : error.message
        })
    )
  )
  const decoded = decodeConfig(text, file)
  return Result.isSuccess(decoded) ? { file, config: decoded.success } : yield* Effect.fail(decoded.failure)
})
