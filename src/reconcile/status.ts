/** What the report says of an app, derived from what its fiber knows. Pure. */
import { sameJson } from "../document/difference.ts"
import type { AppId, DeploymentId, DesiredVolume, VolumeId } from "../document/schema.ts"
import type { InstanceState } from "../report/schema.ts"
import type { Fetching } from "../services/ArtifactStore.ts"
import type { UnavailableTarget } from "../services/Proxy.ts"
import { backoffMs, secondsUntil } from "./backoff.ts"
import { describeFailure, verdict } from "./health.ts"
import type { AppModel, StartProgress } from "./model.ts"
import {
  attemptsOf,
  dormant,
  grows,
  isUnmade,
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
    case "fetching":
      return fetchingMessage(progress.fetching)
    default:
      return undefined
  }
}

const fetchingMessage = ({ objectKey, bytes, totalBytes }: Fetching): string => {
  const mib = (count: number) => Math.floor(count / 2 ** 20)
  const share = totalBytes === undefined ? "" : ` of ${mib(totalBytes)}`
  return `fetching ${JSON.stringify(clipKey(objectKey))}: ${mib(bytes)}${share} MiB`
}

/** A key may be long, and what is said of it must still be read. */
const clipKey = (objectKey: string): string => {
  const points = Array.from(objectKey)
  return points.length <= 120 ? objectKey : `${points.slice(0, 119).join("")}…`
}

/** Why the layers of the release that the document names are not here, when their fetching has failed. */
const fetchFailure = ({ desired, replacement }: AppModel): string | undefined => {
  const next = desired.instance?.deploymentId
  const failure = replacement?.deploymentId === next ? replacement?.failure : undefined
  return failure === undefined ? undefined : `${next} cannot be fetched: ${failure.reason}`
}

/** Why the volume of the release that the document names is not there, when its making has failed. */
const makingFailure = ({ desired: { instance }, volumes }: AppModel): string | undefined => {
  const known = instance === undefined ? undefined : volumes.get(instance.volumeId)
  return known?.record?.state === "ready" ? undefined : known?.failure?.reason
}

/** Why the release that the document names does not serve yet. */
const replacementMessage = (model: AppModel): string | undefined => {
  const { desired, attachment, step, progress } = model
  const serving = attachment?.instance.deploymentId
  const failure = makingFailure(model) ?? fetchFailure(model)
  if (failure !== undefined) return `deployment ${serving} serves on, as ${failure}`
  if (step?.kind !== "fetch-layers") return undefined
  const how = progressMessage(progress)
  return `deployment ${serving} serves until ${desired.instance?.deploymentId} is fetched${how === undefined ? "" : `; ${how}`}`
}

/** Why the release that the document names does not take the place of one that sleeps. */
const asleepMessage = (model: AppModel): string | undefined => {
  const failure = fetchFailure(model)
  return failure === undefined
    ? progressMessage(model.progress)
    : `${failure}. What deployment ${model.record?.instance?.deploymentId} holds asleep is kept`
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
  if (attachment !== undefined && step?.kind !== "start" && step?.kind !== "wake") {
    // What serves is not what the document asks for.
    const replaced = instance !== undefined && attachment.instance.deploymentId !== instance.deploymentId
    if (replaced && wantsMachine(instance))
      return refusal === undefined
        ? ["pending", replacementMessage(model)]
        : ["failed", `${refusal}. Deployment ${attachment.instance.deploymentId} serves on`]
    const check = attachment.instance.config.healthCheck
    const seen = verdict(model.health, check, now - (record?.startedAt ?? now))
    const sentence =
      seen === "unhealthy" || seen === "never-answered"
        ? describeFailure(model.health, check, attachment.instance.config.httpPort)
        : (refusal ?? model.sleepFailure)
    return [seen === "never-answered" ? "failed" : seen, sentence]
  }
  if (refusal !== undefined) return ["failed", refusal]
  if (instance === undefined) return ["pending", undefined]
  // Who is to be stopped needs its slot for nothing but to say so to callers.
  if (model.slotFailure !== undefined && record === undefined)
    return [wantsMachine(instance) ? "failed" : "stopped", model.slotFailure.reason]
  if (step?.kind === "start" || step?.kind === "wake") {
    if (model.progress?.kind === "booting") return ["starting", undefined]
    return [step.kind === "wake" && !step.patient ? "idle" : "pending", progressMessage(model.progress)]
  }
  if (dormant(record, instance, attachment !== undefined)) {
    return [instance.desiredState === "on-request" ? "idle" : "pending", model.wakeFailure]
  }
  if (record?.asleep?.machine !== undefined && wantsMachine(instance)) {
    return ["pending", asleepMessage(model)]
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

/** A guest that reads or writes waits meanwhile; what it has in memory it goes on with. */
const waitsForVolume = ({ attachment, step, volumeTrouble }: AppModel): string | undefined => {
  const trouble = attachment === undefined && step === undefined ? undefined : volumeTrouble()
  return trouble === undefined ? undefined : `its volume cannot be read or written now: ${trouble}`
}

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
    message:
      message ?? model.adoptionFailure ?? waitsForVolume(model) ?? model.portTrouble() ?? model.notesFailure,
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

type VolumeUser = Pick<AppModel, "appId" | "desired" | "record"> & { readonly attachment: unknown }

/** The volume of the microVM that is up, or of the one that sleeps: it stays the same until another is booted. */
const volumeInUse = ({ attachment, record }: VolumeUser): VolumeId | undefined =>
  attachment !== undefined || record?.asleep?.machine !== undefined ? record?.instance?.volumeId : undefined

/** Which volume the app uses, where that is not the one that its instance names. */
const usageMessage = (app: VolumeUser, volumeId: VolumeId): string | undefined => {
  const { appId, record } = app
  const { instance } = app.desired
  if (instance === undefined) return undefined
  const inUse = volumeInUse(app)
  if (inUse === undefined || inUse === instance.volumeId || ![inUse, instance.volumeId].includes(volumeId))
    return instance.volumeId === volumeId
      ? undefined
      : `not used: the instance of ${appId} names volume ${instance.volumeId}`
  const until =
    record?.instance?.deploymentId === instance.deploymentId
      ? "until the next deploymentId"
      : `until deployment ${instance.deploymentId} is up`
  return volumeId === inUse
    ? `in use ${until}: ${appId} booted with it; the document now names volume ${instance.volumeId}`
    : `not used ${until}: ${appId} booted with volume ${inUse}`
}

/** What is to be said of a volume. */
export const volumeMessage = (
  app: VolumeUser,
  volumeId: VolumeId,
  wanted: DesiredVolume | undefined,
  known: VolumeFacts | undefined
): string | undefined => {
  const failure = volumeFailure(wanted, known)
  if (failure !== undefined) return failure
  const { instance } = app.desired
  const usage = usageMessage(app, volumeId)
  if (wanted?.desiredState !== "present") {
    if (wanted !== undefined && instance?.volumeId === volumeId)
      return `kept although it is marked absent: the instance of ${instance.appId} still names it`
    return volumeInUse(app) === volumeId ? usage : undefined
  }
  if (usage !== undefined) return usage
  return grows(wanted, known) && volumeInUse(app) === volumeId
    ? `grows from ${known?.record?.sizeBytes} to ${wanted.sizeBytes} bytes when its app boots next`
    : undefined
}

/** The sentence for a volume that the document gives to another app than the one whose data it holds. */
export const volumeOfAnother = (volumeId: VolumeId, owner: AppId): string =>
  `volume ${volumeId} belongs to app ${owner}: a volume never changes hands; name another one`

/** How far the contents of a volume that is being made have come. */
const fillingMessage = ({ step, progress }: AppModel, volumeId: VolumeId): string | undefined =>
  step?.kind === "provision-volume" && step.volume.volumeId === volumeId
    ? progressMessage(progress)
    : undefined

/** One that was never made is nothing that the host keeps. */
const isKept = ([, { record }]: readonly [VolumeId, VolumeFacts]): boolean => !isUnmade(record)

export const volumeStatuses = (model: AppModel): ReadonlyArray<VolumeStatus> => {
  const kept = [...model.volumes].filter(isKept)
  const ids = new Set([
    ...model.desired.volumes.map(({ volumeId }) => volumeId),
    ...kept.map(([volumeId]) => volumeId)
  ])
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
      message: foreign ?? volumeMessage(model, volumeId, wanted, known) ?? fillingMessage(model, volumeId)
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

/** What is to be done with what comes for the app. `held`: it waits until the app is up, or is known not to come up. */
export type Reachability = { readonly kind: "up" } | { readonly kind: "held" } | UnavailableTarget

/** Whether the microVM that is up serves: a new release's layers may be on their way meanwhile. */
const serves = ({ attachment, step, progress, health, record }: AppModel, now: number): boolean => {
  if (attachment === undefined || step?.kind === "stop" || step?.kind === "start" || step?.kind === "wake")
    return false
  if (step?.kind === "sleep" && progress?.kind === "falling-asleep") return false
  const check = attachment.instance.config.healthCheck
  const seen = verdict(health, check, now - (record?.startedAt ?? now))
  return seen === "running" || seen === "unhealthy"
}

/** Seconds until the next start that the restart policy allows, for the caller. */
const retryAfter = (model: AppModel, now: number): number | undefined => {
  const { record } = model
  const { instance } = model.desired
  if (instance === undefined || record?.failure === undefined || outOfRestarts(record, instance))
    return undefined
  const policy = instance.config.restartPolicy
  return secondsUntil(record.failure.at + backoffMs(policy, attemptsOf(record, instance)), now)
}

/** What the proxy does with what comes for the app in this state. */
export const reachability = (model: AppModel, status: InstanceStatus, now: number): Reachability => {
  if (serves(model, now)) return { kind: "up" }
  const { step, progress } = model
  const replaced = step?.kind === "stop" && step.reason === "superseded"
  const short = progress?.kind === "short-of-memory"
  const coming =
    replaced ||
    step?.kind === "sleep" ||
    status.state === "starting" ||
    status.state === "idle" ||
    status.state === "running" ||
    (status.state === "pending" && !short)
  if (coming) return { kind: "held" }
  const seconds = short ? memoryRetrySeconds : retryAfter(model, now)
  return {
    kind: "unavailable",
    reason: unavailableReason[status.state],
    ...(seconds === undefined ? {} : { retryAfter: seconds })
  }
}

/** How soon somebody may come back who finds no room. */
export const memoryRetrySeconds = 5

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
