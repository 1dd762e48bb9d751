/** From the text of `config.toml` to what the host is, or to everything that is wrong with it. */
import { Result, Schema } from "effect"
import { type Disclosure, type Path, type Problem, problemsOf } from "../document/problems.ts"
import { ruleProblems } from "./rules.ts"
import { HostConfig } from "./schema.ts"
import { isPrefix, readToml, TomlFloat, tomlPlaces } from "./toml.ts"

export const ConfigIssue = Schema.Struct({
  /** The dotted key; empty for the file. */
  path: Schema.String,
  message: Schema.String,
  /** 1-based, in code points: where the value is, or the table that lacks the key. */
  line: Schema.Int,
  column: Schema.Int
})
export interface ConfigIssue extends Schema.Schema.Type<typeof ConfigIssue> {}

/** The configuration is refused. `issues` is in the order of the text. */
export class ConfigRefused extends Schema.TaggedError<ConfigRefused>()("ConfigRefused", {
  file: Schema.String,
  issues: Schema.Array(ConfigIssue)
}) {
  override get message() {
    const lines = this.issues.map(({ column, line, message }) => `${this.file}:${line}:${column}: ${message}`)
    return `the configuration is refused:\n${lines.join("\n")}`
  }
}

const bareKey = /^[A-Za-z0-9_-]+$/u

/** `proxy.http.port`, `network.denied_egress_addresses_v4[0]`; a key that needs quotes gets them. */
export const toDottedKey = (path: Path): string =>
  path.reduce<string>((dotted, key) => {
    if (typeof key === "number") return `${dotted}[${key}]`
    const text = bareKey.test(key) ? key : JSON.stringify(key)
    return dotted === "" ? text : `${dotted}.${text}`
  }, "")

const isStoreUrl = (path: Path) => path.at(-1) === "store_url" || path.at(-1) === "storage_url"

const disclosure: Disclosure = {
  // An operator may have put a password into it.
  secret: isStoreUrl,
  name: (path) => (path.length === 0 ? "the file" : toDottedKey(path)),
  describe: (value) => (value instanceof TomlFloat ? `the float ${value.value}` : undefined),
  object: "a table"
}

const decode = Schema.decodeUnknownResult(HostConfig, { errors: "all", onExcessProperty: "error" })

const located = (text: string, file: string, problems: ReadonlyArray<Problem>): ConfigRefused => {
  const place = tomlPlaces(text)
  const unique = new Map<string, ConfigIssue>()
  const refusedKeys = problems.filter(({ at }) => at === "key")
  for (const { at, message, path } of problems) {
    // Of a table that does not belong here, its contents are not worth a word.
    if (refusedKeys.some((key) => key.path.length < path.length && isPrefix(key.path, path))) continue
    const dotted = toDottedKey(path)
    // A rule and the schema may find the same thing: the rule, which comes first, says it better.
    if (!unique.has(dotted)) unique.set(dotted, { path: dotted, message, ...place(path, at) })
  }
  const issues = [...unique.values()].sort((a, b) => a.line - b.line || a.column - b.column)
  return new ConfigRefused({ file, issues })
}

/** The largest configuration that is read, in characters. */
export const MAX_CONFIG_LENGTH = 1024 * 1024

/** Reads a configuration, or refuses it with all its problems. `file` is its path, for the message. */
export const decodeConfig = (text: string, file: string): Result.Result<HostConfig, ConfigRefused> => {
  const refuse = (message: string, line = 1, column = 1) =>
    Result.fail(new ConfigRefused({ file, issues: [{ path: "", message, line, column }] }))

  if (text.length > MAX_CONFIG_LENGTH)
    return refuse(`the file has ${text.length} characters, but at most ${MAX_CONFIG_LENGTH} are read`)
  const reading = readToml(text)
  if (Result.isFailure(reading)) {
    const { column, line, message } = reading.failure
    return refuse(`the file is not TOML: ${message}`, line, column)
  }
  const value = reading.success
  const rules = ruleProblems(value)
  const decoded = decode(value)
  if (Result.isFailure(decoded))
    return Result.fail(
      located(text, file, [...rules, ...problemsOf(decoded.failure.issue, value, disclosure)])
    )
  return rules.length > 0 ? Result.fail(located(text, file, rules)) : Result.succeed(decoded.success)
}
