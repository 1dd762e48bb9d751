/** Layer images that are only names. */
import { Effect, Layer } from "effect"
import type { ArtifactStoreError } from "../../src/services/ArtifactStore.ts"
import { LayerImages, type LayerUnusable } from "../../src/services/LayerImages.ts"
import { Script } from "./Script.ts"

/** What outlives the layer, as a disk does. */
export interface LayerImagesWorld {
  /** Paths of the images that were made. */
  readonly images: Set<string>
  /** The subject is the layer's object key. */
  readonly script: Script<{ prepare: ArtifactStoreError | LayerUnusable }>
}

export const makeLayerImagesWorld = (): LayerImagesWorld => ({ images: new Set(), script: new Script() })

/** Every layer can be made, unless the script says otherwise; no object is asked for. */
export const layerLayerImagesMemory = (world: LayerImagesWorld) =>
  Layer.succeed(LayerImages, {
    prepare: (layer) =>
      world.script.around(
        "prepare",
        layer.objectKey,
        Effect.sync(() => {
          const path =
            layer.kind === "filesystem"
              ? `/memory/layers/${layer.digest}`
              : `/memory/layers/${layer.digest}${layer.destinationPath}`
          world.images.add(path)
          return path
        })
      )
  })
