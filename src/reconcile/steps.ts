/** What each step of the planner does. Fails with an error whose message is the sentence for the report. */
import { Effect, Schema } from "effect"
import { AppId, type DesiredVolume, VolumeId } from "../document/schema.ts"
import type { VolumeRecord } from "../services/HostState.ts"
import { type App, withFetchProgress } from "./app-context.ts"
import type { Step } from "./plan.ts"
import { sleep, snapshotPlace } from "./sleep.ts"
import { prepareLayers, start } from "./start.ts"
import { volumeOfAnother } from "./status.ts"
import { endStray, stop } from "./stop.ts"
import { wake } from "./wake.ts"

/** All slots are taken. */
export class NoSlotLeft extends Schema.TaggedError<NoSlotLeft>()("NoSlotLeft", { maxApps: Schema.Int }) {
  override get message() {
    return `no slot is left: all ${this.maxApps} of max_apps are taken`
  }
}

const saveVolume = Effect.fnUntraced(function* (app: App, record: VolumeRecord) {
  yield* app.host.state.saveVolume(record)
  app.model.volumes.set(record.volumeId, { record, failure: undefined })
})

/** The document gives the volume of one app to another: it would carry one's data to the other. */
export class VolumeOfAnother extends Schema.TaggedError<VolumeOfAnother>()("VolumeOfAnother", {
  volumeId: VolumeId,
  owner: AppId
}) {
  override get message() {
    return volumeOfAnother(this.volumeId, this.owner)
  }
}

/** The archive that a volume starts with, fetched; none for one that is made already, or that starts empty. */
const contentsOf = Effect.fnUntraced(function* (app: App, { initialContents }: DesiredVolume, made: boolean) {
  if (made || initialContents === undefined || initialContents === null) return undefined
  const { digest, objectKey, destinationPath } = initialContents
  const archive = yield* withFetchProgress(app, app.host.artifacts.fetch({ digest, objectKey }))
  return { archive, objectKey, destinationPath }
})

const provision = Effect.fnUntraced(function* (app: App, wanted: DesiredVolume) {
  const { volumeId, sizeBytes } = wanted
  const { appId } = app.model
  const { metrics } = app.host
  const owner = app.host.volumeOwners.get(volumeId)
  if (owner !== undefined && owner !== appId) return yield* new VolumeOfAnother({ volumeId, owner })
  app.host.volumeOwners.set(volumeId, appId)
  const known = app.model.volumes.get(volumeId)?.record
  // A volume that grows stays whole all the while; one that is made is not, until it is formatted.
  if (known?.state !== "ready") yield* saveVolume(app, { volumeId, appId, sizeBytes, state: "provisioning" })
  const contents = yield* contentsOf(app, wanted, known?.state === "ready")
  const provisioned = app.host.volumes.provision({
    volumeId,
    sizeBytes,
    ...(contents === undefined ? {} : { contents })
  })
  yield* metrics.phase(appId, "volume", metrics.storage("volume_provision", provisioned))
  yield* saveVolume(app, { volumeId, appId, sizeBytes, state: "ready" })
})

const deleteVolume = Effect.fnUntraced(function* (app: App, volumeId: VolumeId) {
  const known = app.model.volumes.get(volumeId)?.record
  if (known === undefined) return
  yield* saveVolume(app, { ...known, state: "deleting" })
  yield* app.host.metrics.storage("volume_teardown", app.host.volumes.teardown(volumeId))
  yield* saveVolume(app, { ...known, state: "deleted" })
})

const forgetVolume = Effect.fnUntraced(function* (app: App, volumeId: VolumeId) {
  const known = app.model.volumes.get(volumeId)?.record
  // Nothing was noted of it: it may be another app's.
  if (known === undefined) return void app.model.volumes.delete(volumeId)
  if (known.state === "provisioning") {
    const whole = yield* app.host.volumes.list
    // It was made, and a daemon died before it could note that: what exists is kept.
    if (whole.includes(volumeId)) return yield* saveVolume(app, { ...known, state: "ready" })
  }
  yield* app.host.state.deleteVolume(volumeId)
  app.model.volumes.delete(volumeId)
  app.host.volumeOwners.delete(volumeId)
})

/** The notes first: a snapshot that they do not speak of wakes nobody, and goes with the next start of the daemon. */
const discardSnapshot = Effect.fnUntraced(function* (app: App) {
  const { appId, record } = app.model
  if (record?.asleep === undefined) return
  yield* app.amend(({ asleep: _, ...rest }) => rest)
  yield* app.host.hypervisor.discard(snapshotPlace(app, "").directory)
  // What it held of the network while it slept; who is booted next takes it anew.
  yield* Effect.catch(app.host.network.detach(record.slot), (error) => Effect.logError(error.message))
  yield* Effect.logInfo(`what ${appId} held in memory is discarded: it does not wake as it was`)
})

const claimSlot = Effect.fnUntraced(function* (app: App) {
  const record = yield* app.host.claimSlot(app.model.appId)
  if (record === undefined) return yield* new NoSlotLeft({ maxApps: app.host.settings.maxApps })
  app.model.record = record
})

/** The log goes with the instance: who is dropped from the document leaves no words behind. */
const retire = Effect.fnUntraced(function* (app: App) {
  yield* app.host.logs.forget(app.model.appId)
  yield* app.amend(({ appId, slot }) => ({ appId, slot, attempts: 0, restartCount: 0 }))
})

const releaseSlot = Effect.fnUntraced(function* (app: App) {
  const slot = app.model.record?.slot
  yield* app.host.logs.forget(app.model.appId)
  if (slot !== undefined) yield* app.host.network.detach(slot)
  yield* app.host.releaseSlot(app.model.appId)
  app.model.record = undefined
})

/** Waits until the app's microVM is gone, or its pieces are in place, as the step says. */
export const runStep = Effect.fnUntraced(function* (app: App, step: Step) {
  switch (step.kind) {
    case "start":
      return yield* start(app, step.instance, step.slot)
    case "fetch-layers":
      return yield* prepareLayers(app, step.instance)
    case "sleep":
      return app.model.attachment === undefined
        ? undefined
        : yield* sleep(app, app.model.attachment, step.reason)
    case "wake":
      return yield* wake(app, step)
    case "discard-snapshot":
      return yield* discardSnapshot(app)
    case "stop":
      return app.model.attachment === undefined
        ? undefined
        : yield* stop(app, app.model.attachment, step.reason)
    case "end-stray":
      return yield* endStray(app)
    case "provision-volume":
      return yield* provision(app, step.volume)
    case "delete-volume":
      return yield* deleteVolume(app, step.volumeId)
    case "forget-volume":
      return yield* forgetVolume(app, step.volumeId)
    case "claim-slot":
      return yield* claimSlot(app)
    case "retire":
      return yield* retire(app)
    case "release":
      return yield* releaseSlot(app)
  }
})
