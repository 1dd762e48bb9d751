/** Makes the volume `vol-1` of 1 GiB in a process of its own: state directory. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { layerLocalFileVolumes } from "../../layers/volume/local-file.ts"
import { VolumeId } from "../../src/document/schema.ts"
import { VolumeBackend } from "../../src/services/VolumeBackend.ts"

const [stateDir = ""] = process.argv.slice(2)
await Effect.runPromise(
  VolumeBackend.use((volumes) =>
    volumes.provision({ volumeId: VolumeId.make("vol-1"), sizeBytes: 2 ** 30 })
  ).pipe(Effect.provide(layerLocalFileVolumes({ stateDir }).pipe(Layer.provide(NodeServices.layer))))
)
