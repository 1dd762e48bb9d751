/** Makes a volume with initial contents in a process of its own: state directory, archive, bytes. Says what it took. */
import { readFileSync } from "node:fs"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { layerLocalFileVolumes } from "../../layers/volume/local-file.ts"
import { VolumeId } from "../../src/document/schema.ts"
import { VolumeBackend } from "../../src/services/VolumeBackend.ts"

const [stateDir = "", archive = "", sizeBytes = ""] = process.argv.slice(2)

/** MiB. */
const memory = (field: "VmRSS" | "VmHWM"): number =>
  Number(new RegExp(`${field}:\\s+(\\d+) kB`, "u").exec(readFileSync("/proc/self/status", "utf8"))?.[1]) /
  1024

const main = Effect.gen(function* () {
  const volumes = yield* VolumeBackend
  const idle = memory("VmRSS")
  const started = performance.now()
  yield* volumes.provision({
    volumeId: VolumeId.make("vol-1"),
    sizeBytes: Number(sizeBytes),
    contents: { archive, destinationPath: "/app/data", objectKey: "seed" }
  })
  const seconds = (performance.now() - started) / 1000
  yield* Effect.sync(() => console.log(JSON.stringify({ seconds, idle, peak: memory("VmHWM") })))
})

await Effect.runPromise(
  main.pipe(Effect.provide(layerLocalFileVolumes({ stateDir }).pipe(Layer.provide(NodeServices.layer))))
)
