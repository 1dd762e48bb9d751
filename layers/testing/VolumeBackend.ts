/** Volumes in memory. */
import { Clock, Effect, Layer, Semaphore, SubscriptionRef } from "effect"
import type { VolumeId } from "../../src/document/schema.ts"
import {
  type Checkpoint,
  CheckpointError,
  type Checkpoints,
  type InitialContents,
  VolumeBackend,
  VolumeError
} from "../../src/services/VolumeBackend.ts"
import { decideSize } from "../../src/volume/size.ts"
import { Script } from "./Script.ts"

export interface MemoryVolume {
  sizeBytes: number
  /** A new one each time that the volume is formatted, so that a test sees a second format. */
  readonly formatting: number
  /** What it was made with. */
  readonly contents?: InitialContents
}

/** A checkpoint, and the volumes that it holds as they were. */
export interface MemoryCheckpoint extends Checkpoint {
  readonly volumes: ReadonlyMap<VolumeId, MemoryVolume>
}

/** What outlives the layer, as a disk does. */
export interface VolumeWorld {
  readonly volumes: Map<VolumeId, MemoryVolume>
  readonly checkpoints: Map<string, MemoryCheckpoint>
  /** Names of the checkpoints that are open. */
  readonly opened: Array<string>
  /** What keeps the volumes from being read and written. */
  readonly trouble: SubscriptionRef.SubscriptionRef<string | undefined>
  /** How often a volume was formatted, over all volumes. */
  formattings: number
  /** The subject is the volume's id or the checkpoint's name; that of the listings is empty. A volume that stalls `before` is not made yet. */
  readonly script: Script<{
    provision: VolumeError
    attach: VolumeError
    teardown: VolumeError
    list: VolumeError
    flush: VolumeError
    createCheckpoint: CheckpointError
    deleteCheckpoint: CheckpointError
    listCheckpoints: CheckpointError
    openCheckpoint: CheckpointError
  }>
}

export const makeVolumeWorld = (): VolumeWorld => ({
  volumes: new Map(),
  checkpoints: new Map(),
  opened: [],
  trouble: Effect.runSync(SubscriptionRef.make<string | undefined>(undefined)),
  formattings: 0,
  script: new Script()
})

const memoryCheckpoints = (world: VolumeWorld): Checkpoints => {
  const oneAtATime = Semaphore.makeUnsafe(1)
  let made = 0
  return {
    create: (name) =>
      world.script.around(
        "createCheckpoint",
        name,
        Effect.gen(function* () {
          const present = world.checkpoints.get(name)
          if (present !== undefined) return present
          const createdAt = Math.floor((yield* Clock.currentTimeMillis) / 1000) * 1000
          const volumes = new Map([...world.volumes].map(([id, volume]) => [id, { ...volume }]))
          made += 1
          const checkpoint = { name, reference: `memory-${made}`, createdAt, volumes }
          world.checkpoints.set(name, checkpoint)
          return checkpoint
        })
      ),
    delete: (name) =>
      world.script.around(
        "deleteCheckpoint",
        name,
        Effect.sync(() => {
          world.checkpoints.delete(name)
        })
      ),
    list: Effect.suspend(() =>
      world.script.around(
        "listCheckpoints",
        "",
        Effect.sync(() => [...world.checkpoints.values()])
      )
    ),
    open: (name, volumeId) =>
      Effect.gen(function* () {
        yield* Effect.acquireRelease(oneAtATime.take(1), () => oneAtATime.release(1), { interruptible: true })
        return yield* Effect.acquireRelease(
          world.script.around(
            "openCheckpoint",
            name,
            Effect.suspend(() => {
              const refuse = (reason: string) =>
                Effect.fail(new CheckpointError({ checkpoint: name, operation: "opened", reason }))
              const checkpoint = world.checkpoints.get(name)
              if (checkpoint === undefined) return refuse("there is no such checkpoint")
              if (!checkpoint.volumes.has(volumeId)) return refuse(`volume ${volumeId} is not in it`)
              world.opened.push(name)
              return Effect.succeed({
                kind: "nbd" as const,
                socketPath: "/memory/checkpoint.sock",
                exportName: volumeId
              })
            })
          ),
          () => Effect.sync(() => world.opened.splice(world.opened.indexOf(name), 1))
        )
      })
  }
}

export interface VolumeBackendMemoryOptions {
  /** False: as the backend is whose volumes are files. */
  readonly checkpoints?: boolean
}

export const layerVolumeBackendMemory = (
  world: VolumeWorld,
  { checkpoints = true }: VolumeBackendMemoryOptions = {}
) =>
  Layer.succeed(VolumeBackend, {
    trouble: world.trouble,
    checkpoints: checkpoints ? memoryCheckpoints(world) : undefined,
    flush: (volumeId) =>
      world.script.around(
        "flush",
        volumeId,
        Effect.suspend(() =>
          world.volumes.has(volumeId)
            ? Effect.void
            : Effect.fail(
                new VolumeError({ volumeId, operation: "flushed", reason: "there is no such volume" })
              )
        )
      ),
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
              world.volumes.set(spec.volumeId, {
                sizeBytes: spec.sizeBytes,
                formatting: world.formattings,
                ...(spec.contents === undefined ? {} : { contents: spec.contents })
              })
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
