/** Filesystem images of an instance's layers, ready to be attached read-only. */
import { Context, type Effect, Schema } from "effect"
import type { DesiredLayer } from "../document/schema.ts"
import type { ArtifactStoreError } from "./ArtifactStore.ts"

/** The object is there and is what the digest says, but no layer can be made of it. */
export class LayerUnusable extends Schema.TaggedError<LayerUnusable>()("LayerUnusable", {
  kind: Schema.Literals(["filesystem", "executable"]),
  digest: Schema.String,
  objectKey: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `the ${this.kind} layer ${JSON.stringify(this.objectKey)} (sha-256 ${this.digest.slice(0, 12)}…) ${this.reason}`
  }
}

export class LayerImages extends Context.Service<
  LayerImages,
  {
    /**
     * The path of the layer's image. A `filesystem` layer is the object as it was uploaded, which must be
     * squashfs or ext4 by its magic; an `executable` layer is packed into a squashfs that holds the one file
     * at `destinationPath`, root's, 0755: the same bytes each time. Made once per layer.
     */
    readonly prepare: (layer: DesiredLayer) => Effect.Effect<string, ArtifactStoreError | LayerUnusable>
  }
>()("nibrunner/services/LayerImages") {}
