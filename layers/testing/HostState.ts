/** The host's notes in memory. */
import { Effect, Layer, Option } from "effect"
import type { AppId, CheckpointId, ExportId, VolumeId } from "../../src/document/schema.ts"
import {
  type AcceptedDocument,
  type AppRecord,
  type CheckpointRecord,
  type ExportRecord,
  HostState,
  HostStateError,
  type MeterRecord,
  type VolumeRecord
} from "../../src/services/HostState.ts"
import { Script } from "./Script.ts"

/** What outlives the layer, as a disk does. Records are shared with nobody: they are copied in and out. */
export interface HostStateWorld {
  document: AcceptedDocument | undefined
  readonly apps: Map<AppId, AppRecord>
  readonly volumes: Map<VolumeId, VolumeRecord>
  readonly checkpoints: Map<CheckpointId, CheckpointRecord>
  readonly exports: Map<ExportId, ExportRecord>
  readonly meters: Map<AppId, MeterRecord>
  slotCursor: number
  /** `before` an operation nothing is committed, `after` it everything is. The subject is the id that is written. */
  readonly script: Script<{
    document: HostStateError
    accept: HostStateError
    apps: HostStateError
    saveApp: HostStateError
    deleteApp: HostStateError
    volumes: HostStateError
    saveVolume: HostStateError
    deleteVolume: HostStateError
    checkpoints: HostStateError
    saveCheckpoint: HostStateError
    deleteCheckpoint: HostStateError
    exports: HostStateError
    saveExport: HostStateError
    deleteExport: HostStateError
    meters: HostStateError
    saveMeters: HostStateError
    slotCursor: HostStateError
    claimSlot: HostStateError
  }>
}

export const makeHostStateWorld = (): HostStateWorld => ({
  document: undefined,
  apps: new Map(),
  volumes: new Map(),
  checkpoints: new Map(),
  exports: new Map(),
  meters: new Map(),
  slotCursor: -1,
  script: new Script()
})

export const layerHostStateMemory = (world: HostStateWorld) => {
  const { script } = world

  const putApp = (operation: string, record: AppRecord) =>
    Effect.suspend(() => {
      const holder = [...world.apps.values()].find(
        (other) => other.slot === record.slot && other.appId !== record.appId
      )
      if (holder !== undefined) {
        return Effect.fail(
          new HostStateError({
            operation,
            cause: new Error(`slot ${record.slot} belongs to app ${holder.appId}`)
          })
        )
      }
      world.apps.set(record.appId, structuredClone(record))
      return Effect.void
    })

  return Layer.succeed(HostState, {
    document: Effect.suspend(() =>
      script.around(
        "document",
        "",
        Effect.sync(() => Option.fromNullishOr(world.document))
      )
    ),
    accept: (document) =>
      script.around(
        "accept",
        document.digest,
        Effect.sync(() => {
          world.document = document
        })
      ),
    apps: Effect.suspend(() =>
      script.around(
        "apps",
        "",
        Effect.sync(() => structuredClone([...world.apps.values()]))
      )
    ),
    saveApp: (record) => script.around("saveApp", record.appId, putApp("save an app", record)),
    deleteApp: (appId) =>
      script.around(
        "deleteApp",
        appId,
        Effect.sync(() => {
          world.apps.delete(appId)
        })
      ),
    volumes: Effect.suspend(() =>
      script.around(
        "volumes",
        "",
        Effect.sync(() => structuredClone([...world.volumes.values()]))
      )
    ),
    saveVolume: (record) =>
      script.around(
        "saveVolume",
        record.volumeId,
        Effect.sync(() => {
          world.volumes.set(record.volumeId, structuredClone(record))
        })
      ),
    deleteVolume: (volumeId) =>
      script.around(
        "deleteVolume",
        volumeId,
        Effect.sync(() => {
          world.volumes.delete(volumeId)
        })
      ),
    checkpoints: Effect.suspend(() =>
      script.around(
        "checkpoints",
        "",
        Effect.sync(() => structuredClone([...world.checkpoints.values()]))
      )
    ),
    saveCheckpoint: (record) =>
      script.around(
        "saveCheckpoint",
        record.checkpointId,
        Effect.sync(() => {
          world.checkpoints.set(record.checkpointId, structuredClone(record))
        })
      ),
    deleteCheckpoint: (checkpointId) =>
      script.around(
        "deleteCheckpoint",
        checkpointId,
        Effect.sync(() => {
          world.checkpoints.delete(checkpointId)
        })
      ),
    exports: Effect.suspend(() =>
      script.around(
        "exports",
        "",
        Effect.sync(() => structuredClone([...world.exports.values()]))
      )
    ),
    saveExport: (record) =>
      script.around(
        "saveExport",
        record.exportId,
        Effect.sync(() => {
          world.exports.set(record.exportId, structuredClone(record))
        })
      ),
    deleteExport: (exportId) =>
      script.around(
        "deleteExport",
        exportId,
        Effect.sync(() => {
          world.exports.delete(exportId)
        })
      ),
    meters: Effect.suspend(() =>
      script.around(
        "meters",
        "",
        Effect.sync(() => structuredClone([...world.meters.values()]))
      )
    ),
    saveMeters: (records, forgotten) =>
      script.around(
        "saveMeters",
        "",
        Effect.sync(() => {
          for (const appId of forgotten) world.meters.delete(appId)
          for (const record of records) world.meters.set(record.appId, structuredClone(record))
        })
      ),
    slotCursor: Effect.suspend(() =>
      script.around(
        "slotCursor",
        "",
        Effect.sync(() => world.slotCursor)
      )
    ),
    claimSlot: (record) =>
      script.around(
        "claimSlot",
        record.appId,
        putApp("claim a slot", record).pipe(
          Effect.tap(() =>
            Effect.sync(() => {
              world.slotCursor = record.slot
            })
          )
        )
      )
  })
}
