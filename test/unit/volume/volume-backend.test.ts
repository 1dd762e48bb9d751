import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { layerVolumeBackendMemory, makeVolumeWorld } from "../../../layers/testing/VolumeBackend.ts"
import { layerLocalFileVolumes } from "../../../layers/volume/local-file.ts"
import type { VolumeId } from "../../../src/document/schema.ts"
import { volumeBackendConformance } from "../../conformance/volume-backend.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

volumeBackendConformance(
  "memory",
  Effect.sync(() => {
    const world = makeVolumeWorld()
    return {
      layer: layerVolumeBackendMemory(world),
      formatting: (volumeId) => Effect.sync(() => String(world.volumes.get(volumeId)?.formatting)),
      formattingAt: ({ exportName }) =>
        Effect.sync(() => {
          const opened = world.checkpoints.get(world.opened[0] ?? "")
          return String(opened?.volumes.get(exportName as VolumeId)?.formatting)
        }),
      size: (volumeId) => Effect.sync(() => world.volumes.get(volumeId)?.sizeBytes ?? -1)
    }
  })
)

/** Bytes 104 to 119 of the superblock, which lies at 1024. */
const uuidOf = async (file: string): Promise<string> => {
  const handle = await fs.open(file)
  const { buffer } = await handle.read(Buffer.alloc(16), 0, 16, 1024 + 104)
  await handle.close()
  return buffer.toString("hex")
}

volumeBackendConformance(
  "local-file",
  Effect.map(temporaryDirectory, (stateDir) => {
    const fileOf = (volumeId: VolumeId) => path.join(stateDir, "volumes", `${volumeId}.img`)
    return {
      layer: layerLocalFileVolumes({ stateDir }).pipe(Layer.provide(NodeServices.layer)),
      formatting: (volumeId) => Effect.promise(() => uuidOf(fileOf(volumeId))),
      size: (volumeId) => Effect.promise(async () => (await fs.stat(fileOf(volumeId))).size)
    }
  })
)
