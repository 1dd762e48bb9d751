/** Where apps' volumes live. */
import { Context, type Effect, Schema, type Scope, type SubscriptionRef } from "effect"
import type { VolumeId } from "../document/schema.ts"

/** A volume as an export of an NBD server. */
export const NbdExport = Schema.Struct({
  kind: Schema.tag("nbd"),
  /** The path of the server's unix socket. */
  socketPath: Schema.String,
  exportName: Schema.String
})
export type NbdExport = typeof NbdExport.Type

/**
 * How a hypervisor reaches a volume's blocks. The same volume always gives the same attachment: a snapshot holds it.
 *
 * An NBD socket is a volume's own: it leads to this export and to no other, whoever asks. It is alone in its directory,
 * which is what to show to a VMM that sees little else; the socket itself may be replaced while the VMM runs.
 */
export const VolumeAttachment = Schema.Union([
  Schema.Struct({ kind: Schema.tag("file"), path: Schema.String }),
  NbdExport
])
export type VolumeAttachment = typeof VolumeAttachment.Type

/** The volume cannot be made, attached or deleted. `message` is the sentence for the report. A listing is about `*`. */
export class VolumeError extends Schema.TaggedError<VolumeError>()("VolumeError", {
  volumeId: Schema.String,
  operation: Schema.Literals(["created", "attached", "deleted", "grown", "listed", "flushed"]),
  reason: Schema.String
}) {
  override get message() {
    return `volume ${this.volumeId} cannot be ${this.operation}: ${this.reason}`
  }
}

/** The checkpoint cannot be made, deleted or opened. A listing is about `*`. */
export class CheckpointError extends Schema.TaggedError<CheckpointError>()("CheckpointError", {
  checkpoint: Schema.String,
  operation: Schema.Literals(["created", "deleted", "listed", "opened"]),
  reason: Schema.String
}) {
  override get message() {
    return `checkpoint ${this.checkpoint} cannot be ${this.operation}: ${this.reason}`
  }
}

/** Why there is neither a checkpoint nor an export of a volume where the backend has no `checkpoints`. */
export const NO_CHECKPOINTS =
  'volumes that are files of this disk have no checkpoints and no exports: they need volumes.backend = "zerofs"'

/** A checkpoint that exists. It holds every volume of the host as it was at one moment. */
export interface Checkpoint {
  readonly name: string
  /** The store's own id of it. */
  readonly reference: string
  /** ms since 1970, whole seconds. */
  readonly createdAt: number
}

/** What a backend does whose volumes lie in an object store. */
export interface Checkpoints {
  /**
   * Cuts a checkpoint. What a guest has not synced, or a backend not flushed, is not in it. One of that name that is there
   * is given back as it is: who wants a fresh one deletes it before.
   */
  readonly create: (name: string) => Effect.Effect<Checkpoint, CheckpointError>
  /** No error when there is none of that name. */
  readonly delete: (name: string) => Effect.Effect<void, CheckpointError>
  /** Every checkpoint that has a name, whoever made it. */
  readonly list: Effect.Effect<ReadonlyArray<Checkpoint>, CheckpointError>
  /**
   * A volume as it was at the checkpoint, read-only, for as long as the scope lasts. One is open at a time: who comes
   * second waits.
   */
  readonly open: (name: string, volumeId: VolumeId) => Effect.Effect<NbdExport, CheckpointError, Scope.Scope>
}

/** What a volume starts with. */
export interface InitialContents {
  /** The archive: a local file whose digest has been checked, told by its content to be a tar or a zip. */
  readonly archive: string
  /** Absolute: the directory, as the app sees it, that the archive is unpacked into. */
  readonly destinationPath: string
  /** What the document calls the archive, for the sentence when it is refused. */
  readonly objectKey: string
}

export interface VolumeSpec {
  readonly volumeId: VolumeId
  /** Bytes. */
  readonly sizeBytes: number
  /** Looked at only when the volume is made. */
  readonly contents?: InitialContents
}

export class VolumeBackend extends Context.Service<
  VolumeBackend,
  {
    /**
     * Makes the volume if there is none: sparse, formatted with ext4, of exactly `sizeBytes`, with its initial
     * contents if it is to have some. A volume that is there is never formatted or filled again: a second call runs no tool. Safe to repeat after a crash at any point:
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
    /** When it succeeds, all that was written to the volume before is where it outlives what this backend outlives. */
    readonly flush: (volumeId: VolumeId) => Effect.Effect<void, VolumeError>
    /** Undefined where volumes have none; `NO_CHECKPOINTS` is the sentence for it. */
    readonly checkpoints: Checkpoints | undefined
    /**
     * What keeps volumes from being read and written just now, as a clause for the apps' messages; undefined while
     * nothing does. Guests that run wait meanwhile, without an I/O error.
     */
    readonly trouble: SubscriptionRef.SubscriptionRef<string | undefined>
  }
>()("nibrunner/services/VolumeBackend") {}
