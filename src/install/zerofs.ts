/** What `install` writes for ZeroFS beside its units. */
import type { ZerofsSection } from "../config/schema.ts"
import { renderReaderConfig, renderZerofsConfig, type ZerofsEnvironment } from "../volume/zerofs-config.ts"
import { generatedFile, type HostFile } from "./generated.ts"
import { valueIn } from "./host-env.ts"

/** The account that ZeroFS runs as. */
export const ZEROFS_USER = "zerofs"
export const ZEROFS_ACCOUNT_FILE = "/etc/sysusers.d/nibrunner-zerofs.conf"

const ENDPOINTS = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"] as const

/** What ZeroFS's configuration has to know of `host.env`: which variable names another S3 than Amazon's. */
export const zerofsEnvironmentOf = (hostEnv: string): ZerofsEnvironment => {
  const endpointVariable = ENDPOINTS.find((name) => (valueIn(hostEnv, name) ?? "") !== "")
  return endpointVariable === undefined
    ? {}
    : {
        endpointVariable,
        endpointIsPlain: /^http:\/\//iu.test(valueIn(hostEnv, endpointVariable) ?? "")
      }
}

const configuration = (path: string, text: string): HostFile =>
  generatedFile(path, ["# It follows from [volumes.zerofs] of config.toml.", text.trimEnd()])

/** Its two configuration files, and the account that systemd-sysusers makes. */
export const zerofsFiles = (zerofs: ZerofsSection, hostEnv: string): ReadonlyArray<HostFile> => {
  const environment = zerofsEnvironmentOf(hostEnv)
  return [
    configuration(zerofs.config_file, renderZerofsConfig(zerofs, environment)),
    configuration(zerofs.checkpoint_config_file, renderReaderConfig(zerofs, environment)),
    generatedFile(ZEROFS_ACCOUNT_FILE, [`u ${ZEROFS_USER} - "ZeroFS, which keeps nibrunner's volumes" - -`])
  ]
}
