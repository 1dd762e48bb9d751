/**
 * One app's future: the planner is asked as the app's fiber asks it, and every step that it gives is taken to
 * succeed. So what is foreseen and what is done come from the same decisions. Pure.
 */
import type { AppId, DeploymentId, DesiredInstance, VolumeId } from "../document/schema.ts"
import type { DesiredApp } from "../reconcile/model.ts"
import { type AppFacts, isUnmade, plan, type Step, type VolumeFacts } from "../reconcile/plan.ts"
import type { AppRecord } from "../services/HostState.ts"
import { VolumeError } from "../services/VolumeBackend.ts"
import { decideSize } from "../volume/size.ts"
import type { Action } from "./actions.ts"
import { keptUntilDeployed } from "./changes.ts"

/** What the apps of one host share. */
export interface HostSupply {
  /** Takes a slot; false when there is none. */
  readonly takeSlot: () => boolean
  readonly giveSlot: () => void
  /** Takes the memory that the app's instance asks for; the MiB that the host is short of, 0 when it was taken. */
  readonly takeMemory: (appId: AppId) => number
  readonly giveMemory: (appId: AppId) => void
}

/** What one app has come to. The walk changes it. */
export interface Walker {
  readonly appId: AppId
  readonly desired: DesiredApp
  readonly refusal: string | undefined
  readonly volumes: Map<VolumeId, VolumeFacts>
  record: AppRecord | undefined
  machineUp: boolean
  /** The host's notes speak of a microVM that has ended since. */
  readonly lost: boolean
  /** ms since 1970. */
  now: number
  /** The time that the restart policy holds the next start back to. */
  notBefore: number | undefined
  /** The release whose layers are taken to be here. */
  fetched: DeploymentId | undefined
  /** What was stopped to be replaced, and how many actions there were by then. */
  superseded: { readonly instance: DesiredInstance; readonly at: number } | undefined
  /** What the app waits for; looked at anew in each round. */
  waiting: { readonly for: "memory"; readonly missingMib: number } | { readonly for: "slot" } | undefined
  readonly actions: Array<Action>
}

const never = Number.POSITIVE_INFINITY

const factsOf = (app: Walker): AppFacts => ({
  now: app.now,
  instance: app.desired.instance,
  desiredVolumes: app.desired.volumes,
  volumes: app.volumes,
  record: app.record,
  machineUp: app.machineUp,
  // A daemon that starts takes up or ends what it finds before it plans anything.
  strayMachine: false,
  refusal: app.refusal,
  slotRetryAt: app.waiting?.for === "slot" ? never : undefined,
  // Nobody knows who will come for it, or when it will be quiet.
  wakeWanted: false,
  sleepDue: undefined,
  replacement: app.fetched === undefined ? undefined : { deploymentId: app.fetched, failure: undefined }
})

const stopSentence = {
  "not-desired": "the document does not name the instance",
  "desired-stopped": "desiredState is stopped",
  superseded: "its deploymentId has changed"
} as const

const bootReason = ({ record }: Walker, deploymentId: DeploymentId): string => {
  const before = record?.instance
  if (before === undefined) return "it is new on this host"
  return before.deploymentId === deploymentId
    ? "it is stopped"
    : `deploymentId is ${deploymentId}; it last was ${before.deploymentId}`
}

const startAction = (app: Walker, step: Extract<Step, { kind: "start" }>): Action => {
  const { deploymentId } = step.instance
  if (app.superseded !== undefined) {
    return {
      kind: "replace",
      fromDeploymentId: app.superseded.instance.deploymentId,
      toDeploymentId: deploymentId,
      changes: keptUntilDeployed(app.superseded.instance, step.instance)
    }
  }
  const { failure } = app.record ?? {}
  const again = app.record?.instance?.deploymentId === deploymentId
  const held = app.notBefore === undefined ? {} : { notBefore: app.notBefore }
  if (again && failure?.deploymentId === deploymentId)
    return { kind: "restart", deploymentId, reason: failure.reason, ...held }
  if (again && app.lost) return { kind: "restart", deploymentId, reason: "its microVM runs no more" }
  return { kind: "boot", deploymentId, reason: bootReason(app, deploymentId) }
}

const provision = (app: Walker, { volume }: Extract<Step, { kind: "provision-volume" }>): void => {
  const { volumeId, sizeBytes } = volume
  const known = app.volumes.get(volumeId)?.record
  const present = known?.state === "ready" ? known.sizeBytes : undefined
  const decision = decideSize(present, sizeBytes)
  if (decision.kind === "refuse") {
    const { operation, reason } = decision
    const { message } = new VolumeError({ volumeId, operation, reason })
    app.volumes.set(volumeId, {
      record: known,
      failure: { reason: message, retryAt: never, wanted: volume }
    })
    return
  }
  app.actions.push(
    present === undefined
      ? { kind: "create-volume", volumeId, sizeBytes }
      : { kind: "grow-volume", volumeId, fromBytes: present, toBytes: sizeBytes }
  )
  app.volumes.set(volumeId, {
    record: { volumeId, appId: app.appId, sizeBytes, state: "ready" },
    failure: undefined
  })
}

const deleteVolume = (app: Walker, volumeId: VolumeId): void => {
  const known = app.volumes.get(volumeId)?.record
  if (known === undefined) return
  const { sizeBytes, state } = known
  app.actions.push({ kind: "delete-volume", volumeId, sizeBytes, dataLost: state !== "provisioning" })
  app.volumes.set(volumeId, { record: { ...known, state: "deleted" }, failure: undefined })
}

/** What a stop leaves in the notes. */
export const withoutMachine = ({
  machine: _,
  startedAt: __,
  healthy: ___,
  ...record
}: AppRecord): AppRecord => record

const withoutSnapshot = ({ asleep: _, ...record }: AppRecord): AppRecord => record

const discardReason = ({ desired: { instance } }: Walker): string => {
  if (instance === undefined) return stopSentence["not-desired"]
  return instance.desiredState === "stopped" ? stopSentence["desired-stopped"] : stopSentence.superseded
}

/** Does one step in thought; false when it cannot be done now. */
const take = (app: Walker, step: Step, supply: HostSupply): boolean => {
  switch (step.kind) {
    case "stop": {
      const booted = app.record?.instance
      if (step.reason === "superseded" && booted !== undefined)
        app.superseded = { instance: booted, at: app.actions.length }
      else app.actions.push({ kind: "stop", reason: stopSentence[step.reason] })
      if (app.record !== undefined) {
        const { failure: _, ...record } = withoutMachine(app.record)
        app.record = { ...record, attempts: 0 }
      }
      app.machineUp = false
      supply.giveMemory(app.appId)
      return true
    }
    case "end-stray":
      if (app.record !== undefined) app.record = withoutMachine(app.record)
      return true
    case "provision-volume":
      provision(app, step)
      return true
    case "delete-volume":
      deleteVolume(app, step.volumeId)
      return true
    case "forget-volume":
      app.actions.push({
        kind: "forget",
        reason: `volume ${step.volumeId} was ${isUnmade(app.volumes.get(step.volumeId)?.record) ? "never made" : "deleted"}`
      })
      app.volumes.delete(step.volumeId)
      return true
    case "claim-slot":
      if (!supply.takeSlot()) {
        app.waiting = { for: "slot" }
        return false
      }
      app.record = { appId: app.appId, slot: 0, attempts: 0, restartCount: 0 }
      return true
    case "start": {
      const missingMib = supply.takeMemory(app.appId)
      if (missingMib > 0) {
        app.waiting = { for: "memory", missingMib }
        return false
      }
      app.actions.push(startAction(app, step))
      const { failure: _, ...record } = app.record ?? { appId: app.appId, attempts: 0, restartCount: 0 }
      app.record = { ...record, slot: step.slot, instance: step.instance }
      app.machineUp = true
      return true
    }
    case "fetch-layers":
      app.fetched = step.instance.deploymentId
      return true
    case "sleep":
      return false
    case "wake": {
      const missingMib = supply.takeMemory(app.appId)
      if (missingMib > 0) {
        app.waiting = { for: "memory", missingMib }
        return false
      }
      app.actions.push({
        kind: "wake",
        deploymentId: step.instance.deploymentId,
        reason: "it sleeps, and desiredState is running"
      })
      if (app.record !== undefined) app.record = withoutSnapshot(app.record)
      app.machineUp = true
      return true
    }
    case "discard-snapshot":
      if (app.record?.asleep?.machine !== undefined)
        app.actions.push({ kind: "discard-memory", reason: discardReason(app) })
      if (app.record !== undefined) app.record = withoutSnapshot(app.record)
      return true
    case "retire":
      if (app.record !== undefined)
        app.record = { appId: app.appId, slot: app.record.slot, attempts: 0, restartCount: 0 }
      app.actions.push({ kind: "forget", reason: "its log goes; its slot and its volumes stay" })
      return true
    case "release":
      app.record = undefined
      app.actions.push({ kind: "forget", reason: "its slot and its log go" })
      supply.giveSlot()
      return true
  }
}

/** The actions of a walk that is over. What was stopped to be replaced and is not replaced has been stopped. */
export const actionsOf = (app: Walker): ReadonlyArray<Action> => {
  if (app.superseded === undefined || app.actions.some(({ kind }) => kind === "replace")) return app.actions
  const stop: Action = { kind: "stop", reason: stopSentence.superseded }
  return app.actions.toSpliced(app.superseded.at, 0, stop)
}

/**
 * Takes the planner's next step, unless it is a stop or something for it is used up; true when it came further.
 * The apps of a host go on side by side, so their steps are taken in turns.
 */
export const stepOn = (app: Walker, supply: HostSupply): boolean => {
  app.waiting = undefined
  const next = plan(factsOf(app))
  if (next.kind === "wait" && next.until !== undefined && next.until !== never) {
    app.now = next.until
    app.notBefore = next.until
    return true
  }
  return next.kind === "step" && next.step.kind !== "stop" && take(app, next.step, supply)
}

/** Stops the microVM if the planner says so; true when it did. */
export const stopIfDue = (app: Walker, supply: HostSupply): boolean => {
  const next = plan(factsOf(app))
  return next.kind === "step" && next.step.kind === "stop" && take(app, next.step, supply)
}
