/** One fetch in a process of its own, as the daemon does it: `s3://bucket`, key, digest, state directory. */
import { readFileSync } from "node:fs"
import { Effect, Redacted } from "effect"
import { layerS3Artifacts } from "../../layers/store/s3/layer.ts"
import { s3Settings } from "../../layers/store/s3/settings.ts"
import { ArtifactStore } from "../../src/services/ArtifactStore.ts"

const [url = "", objectKey = "", digest = "", stateDir = ""] = process.argv.slice(2)
const { AWS_ACCESS_KEY_ID = "", AWS_REGION = "", AWS_SECRET_ACCESS_KEY = "" } = process.env
const settings = s3Settings(
  url,
  {
    region: AWS_REGION,
    accessKeyId: AWS_ACCESS_KEY_ID,
    secretAccessKey: Redacted.make(AWS_SECRET_ACCESS_KEY)
  },
  process.env
)

const mib = (field: string) =>
  Number(new RegExp(`^${field}:\\s+(\\d+) kB`, "mu").exec(readFileSync("/proc/self/status", "utf8"))?.[1]) /
  1024

await Effect.runPromise(
  ArtifactStore.use((store) =>
    Effect.gen(function* () {
      const idleMib = mib("VmRSS")
      const began = performance.now()
      const cpu = process.cpuUsage()
      yield* store.fetch({ objectKey, digest })
      const seconds = (performance.now() - began) / 1000
      const { system, user } = process.cpuUsage(cpu)
      const cpuSeconds = (system + user) / 1e6
      process.stdout.write(JSON.stringify({ seconds, cpuSeconds, idleMib, peakMib: mib("VmHWM") }))
    })
  ).pipe(Effect.provide(layerS3Artifacts({ settings, stateDir })))
)
