/** Where apps' volumes live. */
import { Context, type Effect, Schema } from "effect"
import type { VolumeId } from "../document/schema.ts"

/** How a hypervisor reaches a volume's blocks. */
export const VolumeAttachment = Schema.Union([
  Schema.Struct({ kind: Schema.tag("file"), path: Schema.String })
])
export type VolumeAttachment = typeof VolumeAttachment.Type

/** The volume cannot be made, attached or deleted. `message` is the sentence for the report. A listing is about `*`. */
export class VolumeError extends Schema.TaggedError<VolumeError>()("VolumeError", {
  volumeId: Schema.String,
  operation: Schema.Literals(["created", "attached", "deleted", "grown", "listed"]),
  reason: Schema.String
}) {
  override get message() {
    return `volume ${this.volumeId} cannot be ${this.operation}: ${this.reason}`
  }
}

export interface VolumeSpec {
  readonly volumeId: VolumeId
  /** Bytes. */
  readonly sizeBytes: number
}

export class VolumeBackend extends Context.Service<
  VolumeBackend,
  {
    /**
     * Makes the volume if there is none: sparse, formatted with ext4, of exactly `sizeBytes`. A volume that is
     * there is never formatted again: a second call runs no tool. Safe to repeat after a crash at any point:
     * a volume that was half made is made anew, since no app has seen it. A larger `sizeBytes` grows the
     * device; a smaller one is refused with both sizes named.
     */
    readonly provision: (spec: VolumeSpec) => Effect.Effect<void, VolumeError>
    /** How the hypervisor reaches the volume; fails when it was never provisioned or is gone. */
    readonly attach: (volumeId: VolumeId) => Effect.Effect<VolumeAttachment, VolumeError>
    /** Deletes the volume and its data; no error when there is none. */
    readonly teardown: (volumeId: VolumeId) => Effect.Effect<void, VolumeError>
    /** The volumes that exist whole. */
    readonly list: Effect.Effect<ReadonlyArray<VolumeId>, VolumeError>
  }
>()("nibrunner/services/VolumeBackend") {}
