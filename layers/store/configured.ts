/** The stores that a configuration names. */
import { Effect, Layer } from "effect"
import type { HostSecrets } from "../../src/config/host-env.ts"
import type { HostConfig } from "../../src/config/schema.ts"
import { ExportStore, StoreUnusable } from "../../src/services/ExportStore.ts"
import { layerDirectoryStore } from "./directory.ts"
import { layerDirectoryExports } from "./directory-exports.ts"
import { layerS3Artifacts, layerS3Exports } from "./s3/layer.ts"
import { s3Settings } from "./s3/settings.ts"

type Environment = Readonly<Record<string, string | undefined>>

/** `secrets` have those of S3 whenever the address is one of it: the daemon does not start without. */
const onS3 = (url: string, secrets: HostSecrets, environment: Environment) =>
  url.startsWith("s3://") && secrets.s3 !== undefined ? s3Settings(url, secrets.s3, environment) : undefined

/** Where the objects come from that the document names. */
export const layerArtifacts = (config: HostConfig, secrets: HostSecrets, environment: Environment) => {
  const url = config.artifacts.store_url
  const stateDir = config.paths.state_dir
  const settings = onS3(url, secrets, environment)
  return settings === undefined
    ? layerDirectoryStore({ storeDirectory: url, stateDir })
    : layerS3Artifacts({ settings, stateDir })
}

/** Where exports go. Without a section `[exports]` each put says so. */
export const layerExports = (config: HostConfig, secrets: HostSecrets, environment: Environment) => {
  const url = config.exports?.store_url
  if (url === undefined) return layerNoExports
  const settings = onS3(url, secrets, environment)
  return settings === undefined
    ? layerDirectoryExports({ storeDirectory: url, stateDir: config.paths.state_dir })
    : layerS3Exports(settings)
}

const layerNoExports = Layer.succeed(ExportStore, {
  put: (objectKey) =>
    Effect.fail(
      new StoreUnusable({
        objectKey,
        operation: "stored",
        reason: "config.toml has no section [exports], which names the store (exports.store_url)"
      })
    )
})
