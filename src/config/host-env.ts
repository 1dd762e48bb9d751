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

/** Variables are needed and not set, or empty. */
export class HostEnvIncomplete extends Schema.TaggedError<HostEnvIncomplete>()("HostEnvIncomplete", {
  /** The file that they belong into. */
  file: Schema.String,
  missing: Schema.Array(Schema.Struct({ name: Schema.String, because: Schema.String }))
}) {
  override get message() {
    const names = this.missing.map(({ because, name }) => `${name} (needed because ${because})`)
    return `not set or empty: ${names.join(", ")}: set ${this.missing.length === 1 ? "it" : "them"} in ${this.file}`
  }
}

/** `host.env` lies beside the configuration. */
export const hostEnvFile = (configFile: string): string =>
  `${configFile.slice(0, configFile.lastIndexOf("/") + 1)}host.env`

/**
 * The secrets that this configuration needs, from the environment of the process. A variable that is empty
 * counts as not set. Variables that are not needed are not read.
 */
export const hostSecrets = (
  config: HostConfig,
  environment: Readonly<Record<string, string | undefined>>,
  configFile: string
): Result.Result<HostSecrets, HostEnvIncomplete> => {
  const needed = neededVariables(config)
  const missing = needed.filter(({ name }) => (environment[name] ?? "").trim() === "")
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
