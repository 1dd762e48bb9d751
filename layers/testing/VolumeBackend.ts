/** Volumes in memory. */
import { Effect, Layer } from "effect"
import type { VolumeId } from "../../src/document/schema.ts"
import { VolumeBackend, VolumeError } from "../../src/services/VolumeBackend.ts"
import { decideSize } from "../../src/volume/size.ts"
import { Script } from "./Script.ts"

export interface MemoryVolume {
  sizeBytes: number
  /** A new one each time that the volume is formatted, so that a test sees a second format. */
  readonly formatting: number
}

/** What outlives the layer, as a disk does. */
export interface VolumeWorld {
  readonly volumes: Map<VolumeId, MemoryVolume>
  /** How often a volume was formatted, over all volumes. */
  formattings: number
  /** The subject is the volume's id; that of `list` is empty. A volume that stalls `before` is not made yet. */
  readonly script: Script<{
    provision: VolumeError
    attach: VolumeError
    teardown: VolumeError
    list: VolumeError
  }>
}

export const makeVolumeWorld = (): VolumeWorld => ({
  volumes: new Map(),
  formattings: 0,
  script: new Script()
})

export const layerVolumeBackendMemory = (world: VolumeWorld) =>
  Layer.succeed(VolumeBackend, {
    provision: (spec) =>
      world.script.around(
        "provision",
        spec.volumeId,
        Effect.suspend(() => {
          const decision = decideSize(world.volumes.get(spec.volumeId)?.sizeBytes, spec.sizeBytes)
          switch (decision.kind) {
            case "keep":
              return Effect.void
            case "refuse": {
              const { operation, reason } = decision
              return Effect.fail(new VolumeError({ volumeId: spec.volumeId, operation, reason }))
            }
            case "create":
              world.formattings += 1
              world.volumes.set(spec.volumeId, { sizeBytes: spec.sizeBytes, formatting: world.formattings })
              return Effect.void
            case "grow": {
              const present = world.volumes.get(spec.volumeId)
              if (present !== undefined) present.sizeBytes = spec.sizeBytes
              return Effect.void
            }
          }
        })
      ),
    attach: (volumeId) =>
      world.script.around(
        "attach",
        volumeId,
        Effect.suspend(() =>
          world.volumes.has(volumeId)
            ? Effect.succeed({ kind: "file" as const, path: `/memory/volumes/${volumeId}` })
            : Effect.fail(
                new VolumeError({ volumeId, operation: "attached", reason: "there is no such volume" })
              )
        )
      ),
    teardown: (volumeId) =>
      world.script.around(
        "teardown",
        volumeId,
        Effect.sync(() => {
          world.volumes.delete(volumeId)
        })
      ),
    list: Effect.suspend(() =>
      world.script.around(
        "list",
        "",
        Effect.sync(() => [...world.volumes.keys()])
      )
    )
  })
