/** The secrets of `host.env`: which of them a configuration needs, and their values as the daemon was given them. */
import { Redacted, Result, Schema } from "effect"
import type { HostConfig } from "./schema.ts"

export const ZEROFS_VARIABLE = "ZEROFS_ENCRYPTION_PASSWORD"
export const S3_VARIABLES = ["AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] as const

export interface NeededVariable {
  readonly name: string
  /** The key of `config.toml` that asks for it. */
  readonly because: string
}

const isS3 = (url: string | undefined): boolean => url?.startsWith("s3://") === true

/** The first key that names an object store on S3, if one does. */
const s3Key = (config: HostConfig): string | undefined => {
  const urls: ReadonlyArray<readonly [key: string, url: string | undefined]> = [
    ["artifacts.store_url", config.artifacts.store_url],
    ["exports.store_url", config.exports?.store_url],
    ["volumes.zerofs.storage_url", config.volumes.zerofs?.storage_url]
  ]
  return urls.find(([, url]) => isS3(url))?.[0]
}

/** The variables that this configuration cannot do without. */
export const neededVariables = (config: HostConfig): ReadonlyArray<NeededVariable> => {
  const s3 = s3Key(config)
  return [
    ...(config.volumes.backend === "zerofs"
      ? [{ name: ZEROFS_VARIABLE, because: 'volumes.backend = "zerofs"' }]
      : []),
    ...(s3 === undefined ? [] : S3_VARIABLES.map((name) => ({ name, because: `${s3} is an s3:// address` })))
  ]
}

export interface HostSecrets {
  /** There whenever some store of the configuration is on S3. */
  readonly s3?: {
    readonly region: string
    readonly accessKeyId: string
    readonly secretAccessKey: Redacted.Redacted
  }
  /** There whenever volumes are on ZeroFS. */
  readonly zerofsPassword?: Redacted.Redacted
}

const Missing = Schema.Struct({
  name: Schema.String,
  because: Schema.String,
  /** `host.env` gives it a value, but the process was started without it. */
  inFile: Schema.Boolean
})

const listed = (missing: ReadonlyArray<typeof Missing.Type>): string =>
  missing.map(({ because, name }) => `${name} (needed because ${because})`).join(", ")

/** Variables are needed and not set, or empty. */
export class HostEnvIncomplete extends Schema.TaggedError<HostEnvIncomplete>()("HostEnvIncomplete", {
  /** The file that they belong into. */
  file: Schema.String,
  missing: Schema.Array(Missing)
}) {
  override get message() {
    const notGiven = this.missing.filter(({ inFile }) => inFile)
    const notSet = this.missing.filter(({ inFile }) => !inFile)
    return [
      ...(notSet.length === 0
        ? []
        : [
            `not set or empty: ${listed(notSet)}: set ${notSet.length === 1 ? "it" : "them"} in ${this.file} and start the daemon again`
          ]),
      ...(notGiven.length === 0
        ? []
        : [
            `set in ${this.file}, but not in the daemon's environment: ${listed(notGiven)}: the daemon's unit must name that file as its EnvironmentFile, and the daemon be started again since it was changed`
          ])
    ].join("; ")
  }
}

/** `host.env` lies beside the configuration. */
export const hostEnvFile = (configFile: string): string =>
  `${configFile.slice(0, configFile.lastIndexOf("/") + 1)}host.env`

const assignment = /^[ \t]*([A-Za-z_][A-Za-z0-9_]*)=(.*)$/u

/**
 * The variables to which the text of a `host.env` gives a value, as systemd reads an `EnvironmentFile`. A line that
 * ends in a backslash goes on with the next; lines that start with `#` or `;` say nothing. Of the values only whether
 * they are empty is looked at.
 */
export const namesSetIn = (text: string): ReadonlySet<string> => {
  const names = new Set<string>()
  for (const line of text
    .replace(/\r(?=\n|$)/gu, "")
    .replace(/\\\n/gu, "")
    .split("\n")) {
    const [, name = "", value = ""] = assignment.exec(line) ?? []
    if (name === "") continue
    // The last assignment counts.
    if (/^\s*(?:""|'')?\s*$/u.test(value)) names.delete(name)
    else names.add(name)
  }
  return names
}

/**
 * The secrets that this configuration needs, from the environment of the process. A variable that is empty
 * counts as not set. Variables that are not needed are not read.
 *
 * @param setInFile the variables to which `host.env` gives a value, where that can be told
 */
export const hostSecrets = (
  config: HostConfig,
  environment: Readonly<Record<string, string | undefined>>,
  configFile: string,
  setInFile: ReadonlySet<string> = new Set()
): Result.Result<HostSecrets, HostEnvIncomplete> => {
  const needed = neededVariables(config)
  const missing = needed
    .filter(({ name }) => (environment[name] ?? "").trim() === "")
    .map(({ because, name }) => ({ name, because, inFile: setInFile.has(name) }))
  if (missing.length > 0)
    return Result.fail(new HostEnvIncomplete({ file: hostEnvFile(configFile), missing }))
  const value = (name: string) => environment[name] ?? ""
  const needs = (name: string) => needed.some((variable) => variable.name === name)
  const [region, accessKeyId, secretAccessKey] = S3_VARIABLES
  return Result.succeed({
    ...(needs(secretAccessKey)
      ? {
          s3: {
            region: value(region),
            accessKeyId: value(accessKeyId),
            secretAccessKey: Redacted.make(value(secretAccessKey), { label: secretAccessKey })
          }
        }
      : {}),
    ...(needs(ZEROFS_VARIABLE)
      ? { zerofsPassword: Redacted.make(value(ZEROFS_VARIABLE), { label: ZEROFS_VARIABLE }) }
      : {})
  })
}
