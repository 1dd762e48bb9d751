/** The secrets that this host's configuration needs, from the environment that the daemon was started with. */
import { Effect, Result } from "effect"
import { hostEnvFile, hostSecrets, namesSetIn, neededVariables } from "../config/host-env.ts"
import type { HostConfig } from "../config/schema.ts"
import { readBoundedText } from "./bounded-file.ts"
import { environmentVariable } from "./environment.ts"

/** Who starts the daemon by hand may not be allowed to read the file: then nothing is known of it. */
const setInFile = (file: string) =>
  readBoundedText(file).pipe(
    Effect.map(namesSetIn),
    Effect.orElseSucceed((): ReadonlySet<string> => new Set())
  )

/** Fails with every needed variable that is not there, by name. */
export const readHostSecrets = Effect.fnUntraced(function* (config: HostConfig, configFile: string) {
  const environment: Record<string, string> = {}
  for (const { name } of neededVariables(config)) environment[name] = yield* environmentVariable(name)
  const secrets = hostSecrets(config, environment, configFile)
  if (Result.isSuccess(secrets)) return secrets.success
  const known = yield* setInFile(hostEnvFile(configFile))
  return yield* Effect.fromResult(hostSecrets(config, environment, configFile, known))
})
