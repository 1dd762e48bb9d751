/** What the report says of an app, derived from what its fiber knows. Pure. */
import { sameJson } from "../document/difference.ts"
import type { AppId, DeploymentId, DesiredVolume, VolumeId } from "../document/schema.ts"
import type { InstanceState } from "../report/schema.ts"
import type { RouteTarget } from "../services/Proxy.ts"
import { describeFailure, verdict } from "./health.ts"
import type { AppModel, StartProgress } from "./model.ts"
import {
  attemptsOf,
  grows,
  outOfRestarts,
  sameVolume,
  shrinks,
  type VolumeFacts,
  wantsMachine
} from "./plan.ts"

export interface InstanceStatus {
  readonly deploymentId: DeploymentId
  readonly state: InstanceState
  readonly message: string | undefined
  readonly slot: number | undefined
  readonly layerDigests: ReadonlyArray<string>
  /** Starts that count against the budget. */
  readonly attempts: number
  readonly restartCount: number
  readonly lastRestart: NonNullable<AppModel["record"]>["lastRestart"]
  /** ms since 1970, as all times here. */
  readonly startedAt: number | undefined
  readonly convergedAt: number | undefined
  readonly lastHealthyAt: number | undefined
  readonly lastExitCode: number | undefined
  /** What the instance holds of the host: 0 unless its microVM is up or being started. */
  readonly vcpuCount: number
}

export interface VolumeStatus {
  readonly volumeId: VolumeId
  readonly appId: AppId
  readonly state: "pending" | "ready" | "detached" | "deleted" | "failed"
  readonly sizeBytes: number
  /** Whether it takes room on the host. */
  readonly exists: boolean
  readonly message: string | undefined
}

export interface AppStatus {
  readonly appId: AppId
  /** Held as long as the host keeps anything of the app. */
  readonly slot: number | undefined
  readonly instance: InstanceStatus | undefined
  readonly volumes: ReadonlyArray<VolumeStatus>
}

const progressMessage = (progress: StartProgress | undefined): string | undefined => {
  switch (progress?.kind) {
    case "short-of-memory":
      return `waiting for memory: the host is ${progress.missingMib} MiB short of what this start needs`
    case "start-capacity-in-use":
      return `waiting for a start: ${progress.limit === 1 ? "the one start" : `all ${progress.limit} starts`} of max_concurrent_vm_starts ${progress.limit === 1 ? "is" : "are"} in use`
    default:
      return undefined
  }
}

const spentMessage = (attempts: number, maxRestarts: number, reason: string): string =>
  `${reason}. All ${maxRestarts} restarts are used up after ${attempts} starts: only a new deployment starts it again`

/** State and sentence of an instance that the document names. */
const stateOf = (
  model: AppModel,
  now: number,
  refusal: string | undefined
): readonly [InstanceState, string | undefined] => {
  const { attachment, record, step } = model
  const instance = model.desired.instance
  if (step?.kind === "stop") return ["stopping", undefined]
  if (attachment !== undefined && step?.kind !== "start") {
    const check = attachment.instance.config.healthCheck
    const seen = verdict(model.health, check, now - (record?.startedAt ?? now))
    const sentence =
      seen === "unhealthy" || seen === "never-answered"
        ? describeFailure(model.health, check, attachment.instance.config.httpPort)
        : refusal
    return [seen === "never-answered" ? "failed" : seen, sentence]
  }
  if (refusal !== undefined) return ["failed", refusal]
  if (model.slotFailure !== undefined && record === undefined) return ["failed", model.slotFailure.reason]
  if (instance === undefined) return ["pending", undefined]
  if (step?.kind === "start") {
    if (model.progress?.kind === "booting") return ["starting", undefined]
    return ["pending", progressMessage(model.progress)]
  }
  if (!wantsMachine(instance)) return record === undefined ? ["pending", undefined] : ["stopped", undefined]
  const volume = model.volumes.get(instance.volumeId)
  if (volume?.failure !== undefined && volume.record?.state !== "ready")
    return ["failed", volume.failure.reason]
  const failure = record?.failure
  if (failure === undefined || failure.deploymentId !== instance.deploymentId) return ["pending", undefined]
  const spent = outOfRestarts(record, instance)
  const { maxRestarts } = instance.config.restartPolicy
  return [
    "failed",
    spent ? spentMessage(attemptsOf(record, instance), maxRestarts, failure.reason) : failure.reason
  ]
}

/** Names what the document asks of an app, so that "for the first time as asked" can be told. */
export const askOf = (instance: { readonly deploymentId: string; readonly desiredState: string }): string =>
  `${instance.deploymentId} ${instance.desiredState}`

/** Whether the state is what the document asks. */
export const isConverged = (state: InstanceState, desiredState: string): boolean =>
  desiredState === "stopped"
    ? state === "stopped"
    : state === "running" || (desiredState === "on-request" && state === "idle")

export const instanceStatus = (
  model: AppModel,
  now: number,
  refusal: string | undefined
): InstanceStatus | undefined => {
  const instance = model.desired.instance
  if (instance === undefined) return undefined
  const { record } = model
  const [state, message] = stateOf(model, now, refusal)
  const booted = record?.machine === undefined ? undefined : record.instance
  const up = model.attachment !== undefined
  return {
    deploymentId: instance.deploymentId,
    state,
    message: message ?? model.notesFailure,
    slot: record?.slot,
    layerDigests: up ? (booted?.layers ?? []).map(({ digest }) => digest) : [],
    attempts: attemptsOf(record, instance),
    restartCount: record?.restartCount ?? 0,
    lastRestart: record?.lastRestart,
    startedAt: record?.startedAt,
    convergedAt: record?.converged?.ask === askOf(instance) ? record.converged.at : undefined,
    lastHealthyAt: model.health.lastHealthyAt ?? record?.lastHealthyAt,
    lastExitCode: record?.lastExitCode,
    vcpuCount: up ? (model.attachment?.instance.config.resources.vcpuCount ?? 0) : 0
  }
}

/** Why the volume is not as the document asks; a failure of what the document asked before is none. */
export const volumeFailure = (
  wanted: DesiredVolume | undefined,
  known: VolumeFacts | undefined
): string | undefined => {
  if (wanted === undefined) return undefined
  if (shrinks(wanted, known))
    return `volume ${wanted.volumeId} keeps its ${known?.record?.sizeBytes} bytes: the document asks for ${wanted.sizeBytes}, and a volume never shrinks`
  return known?.failure !== undefined && sameVolume(known.failure.wanted, wanted)
    ? known.failure.reason
    : undefined
}

const volumeState = (
  wanted: DesiredVolume | undefined,
  known: VolumeFacts | undefined
): VolumeStatus["state"] => {
  if (volumeFailure(wanted, known) !== undefined) return "failed"
  const state = known?.record?.state
  if (wanted === undefined) return state === "deleted" ? "deleted" : "detached"
  if (state === "ready" || state === "deleted") return state
  // A volume that is to be absent and never was is as good as deleted.
  return wanted.desiredState === "absent" && state === undefined ? "deleted" : "pending"
}

/** What is to be said of a volume. */
export const volumeMessage = (
  app: Pick<AppModel, "appId" | "desired"> & { readonly attachment: unknown },
  wanted: DesiredVolume | undefined,
  known: VolumeFacts | undefined
): string | undefined => {
  const failure = volumeFailure(wanted, known)
  if (failure !== undefined || wanted === undefined) return failure
  const users = app.desired.instance
  if (wanted.desiredState === "absent") {
    return users?.volumeId === wanted.volumeId
      ? `kept although it is marked absent: the instance of ${users.appId} still names it`
      : undefined
  }
  if (users !== undefined && users.volumeId !== wanted.volumeId)
    return `not used: the instance of ${app.appId} names volume ${users.volumeId}`
  return grows(wanted, known) && app.attachment !== undefined
    ? `grows from ${known?.record?.sizeBytes} to ${wanted.sizeBytes} bytes when its app boots next`
    : undefined
}

/** The sentence for a volume that the document gives to another app than the one whose data it holds. */
export const volumeOfAnother = (volumeId: VolumeId, owner: AppId): string =>
  `volume ${volumeId} belongs to app ${owner}: a volume never changes hands; name another one`

export const volumeStatuses = (model: AppModel): ReadonlyArray<VolumeStatus> => {
  const ids = new Set([...model.desired.volumes.map(({ volumeId }) => volumeId), ...model.volumes.keys()])
  return Array.from(ids, (volumeId) => {
    const wanted = model.desired.volumes.find((volume) => volume.volumeId === volumeId)
    const known = model.volumes.get(volumeId)
    const owner = model.ownerOf(volumeId)
    const foreign =
      wanted !== undefined && owner !== undefined && owner !== model.appId
        ? volumeOfAnother(volumeId, owner)
        : undefined
    return {
      volumeId,
      appId: model.appId,
      state: foreign === undefined ? volumeState(wanted, known) : "failed",
      sizeBytes: known?.record?.sizeBytes ?? wanted?.sizeBytes ?? 0,
      exists: known?.record?.state === "ready" || known?.record?.state === "deleting",
      message: foreign ?? volumeMessage(model, wanted, known)
    }
  })
}

export const appStatus = (model: AppModel, now: number, refusal: string | undefined): AppStatus => ({
  appId: model.appId,
  slot: model.record?.slot,
  instance: instanceStatus(model, now, refusal),
  volumes: volumeStatuses(model)
})

const sameInstance = (left: InstanceStatus | undefined, right: InstanceStatus | undefined): boolean =>
  left === undefined || right === undefined
    ? left === right
    : sameJson({ ...left, lastHealthyAt: undefined }, { ...right, lastHealthyAt: undefined })

/** Whether two states read the same; the time of the last good probe alone is no news. */
export const sameStatus = (left: AppStatus, right: AppStatus): boolean =>
  left.slot === right.slot &&
  sameInstance(left.instance, right.instance) &&
  sameJson(left.volumes, right.volumes)

/** What the proxy does with the app's requests in this state. */
export const routeTarget = (
  status: InstanceStatus,
  reach: (slot: number) => { readonly host: string; readonly port: number }
): RouteTarget => {
  if ((status.state === "running" || status.state === "unhealthy") && status.slot !== undefined) {
    return { kind: "up", ...reach(status.slot) }
  }
  return { kind: "unavailable", reason: unavailableReason[status.state] }
}

/** For strangers: no reason of the operator's is told them. */
const unavailableReason: Record<InstanceState, string> = {
  pending: "This app is waiting to be started.",
  starting: "This app is starting.",
  running: "This app has no address yet.",
  unhealthy: "This app has no address yet.",
  idle: "This app is asleep.",
  stopping: "This app is being stopped.",
  stopped: "This app is stopped.",
  failed: "This app could not be started."
}
