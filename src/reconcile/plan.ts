/**
 * What to do next for one app. Pure: facts in, one step out. The app's fiber asks again after every message
 * and every step, so the planner never has to think further than one step ahead.
 */
import { sameJson } from "../document/difference.ts"
import type { DesiredInstance, DesiredVolume, VolumeId } from "../document/schema.ts"
import type { AppRecord, VolumeRecord } from "../services/HostState.ts"
import { backoffMs, mayStart } from "./backoff.ts"
import type { SleepReason } from "./idle.ts"

/** What is known of one of the app's volumes. */
export interface VolumeFacts {
  readonly record: VolumeRecord | undefined
  /** The last attempt on it failed, and the next one is due at `retryAt` (ms since 1970). */
  readonly failure:
    | { readonly reason: string; readonly retryAt: number; readonly wanted: DesiredVolume }
    | undefined
}

export interface AppFacts {
  /** ms since 1970. */
  readonly now: number
  /** What the document says of the app; undefined when it names no instance of it. */
  readonly instance: DesiredInstance | undefined
  /** The app's volumes in the document, in its order. */
  readonly desiredVolumes: ReadonlyArray<DesiredVolume>
  readonly volumes: ReadonlyMap<VolumeId, VolumeFacts>
  readonly record: AppRecord | undefined
  readonly machineUp: boolean
  /** The record names a microVM that this daemon is not attached to. */
  readonly strayMachine: boolean
  /** Why this host does not run the instance, whatever is tried. */
  readonly refusal: string | undefined
  /** All slots were taken; ask again at this time. */
  readonly slotRetryAt: number | undefined
  /** Something has come for the app and waits for it to be up. */
  readonly wakeWanted: boolean
  /** Its microVM is to sleep. */
  readonly sleepDue: SleepReason | undefined
  /** The layers of the instance that replaces the one that is up are here, or how their fetching failed. */
  readonly replacement:
    | { readonly deploymentId: string; readonly failure: { readonly retryAt: number } | undefined }
    | undefined
}

export type StopReason = "not-desired" | "desired-stopped" | "superseded"

export type Step =
  | { readonly kind: "stop"; readonly reason: StopReason }
  /** A microVM may run that nobody is attached to: what was to end it has failed. */
  | { readonly kind: "end-stray" }
  | { readonly kind: "provision-volume"; readonly volume: DesiredVolume }
  | { readonly kind: "delete-volume"; readonly volumeId: VolumeId }
  | { readonly kind: "claim-slot" }
  | { readonly kind: "start"; readonly instance: DesiredInstance; readonly slot: number }
  /** Fetch what the new release is made of while the old one still serves. */
  | { readonly kind: "fetch-layers"; readonly instance: DesiredInstance }
  | { readonly kind: "sleep"; readonly reason: SleepReason }
  /** `patient`: no caller waits, so it may wait for memory. */
  | {
      readonly kind: "wake"
      readonly instance: DesiredInstance
      readonly slot: number
      readonly patient: boolean
    }
  /** The app sleeps and is not to wake as what it was. */
  | { readonly kind: "discard-snapshot" }
  /** Give up the slot, the record and the log of an app that the document no longer names. */
  | { readonly kind: "release" }
  /** The document no longer names the instance, but its volume is kept: the record stays for its slot alone. */
  | { readonly kind: "retire" }
  /** The document no longer names a volume that was deleted, or that was never made. */
  | { readonly kind: "forget-volume"; readonly volumeId: VolumeId }

export type Plan =
  | { readonly kind: "step"; readonly step: Step }
  /** Nothing to do; look again at this time (ms since 1970) if nothing happens before. */
  | { readonly kind: "wait"; readonly until: number | undefined }
  /** Neither the document nor the host knows anything of this app any more. */
  | { readonly kind: "end" }

const step = (next: Step): Plan => ({ kind: "step", step: next })
const wait = (until?: number): Plan => ({ kind: "wait", until })

/** Whether the document wants a microVM up. An `on-request` app is booted once when it is first deployed. */
export const wantsMachine = (instance: DesiredInstance): boolean => instance.desiredState !== "stopped"

/** Why the microVM that is up should not be; undefined when it should. */
export const stopReason = (facts: AppFacts): StopReason | undefined => {
  const { instance, record } = facts
  if (instance === undefined) return "not-desired"
  if (!wantsMachine(instance)) return "desired-stopped"
  return sameRelease(record, instance) ? undefined : "superseded"
}

/** Whether the record is of the very release that the document names. */
const sameRelease = (record: AppRecord | undefined, instance: DesiredInstance): boolean =>
  record?.instance?.deploymentId === instance.deploymentId

/**
 * Whether the app sleeps: with a snapshot, or without one, as an `on-request` app does that was up once and was stopped, or
 * ended while nobody was there to see it.
 */
export const dormant = (
  record: AppRecord | undefined,
  instance: DesiredInstance | undefined,
  machineUp: boolean
): boolean => {
  if (record === undefined || instance === undefined || machineUp || !sameRelease(record, instance))
    return false
  if (record.asleep !== undefined) return wantsMachine(instance)
  return (
    instance.desiredState === "on-request" &&
    record.machine === undefined &&
    record.booted === true &&
    failureOf(record, instance) === undefined
  )
}

/** Failures of another deployment are not held against this one. */
const failureOf = (record: AppRecord | undefined, instance: DesiredInstance) =>
  record?.failure?.deploymentId === instance.deploymentId ? record.failure : undefined

/** Starts that count against the budget of this deployment. */
export const attemptsOf = (record: AppRecord | undefined, instance: DesiredInstance): number =>
  record?.instance === undefined || record.instance.deploymentId === instance.deploymentId
    ? (record?.attempts ?? 0)
    : 0

/** Whether the restart budget of this deployment is spent. */
export const outOfRestarts = (record: AppRecord | undefined, instance: DesiredInstance): boolean =>
  failureOf(record, instance) !== undefined &&
  !mayStart(instance.config.restartPolicy, attemptsOf(record, instance))

/** Whether a volume was noted at most as one that is to be made. */
export const isUnmade = (record: VolumeRecord | undefined): boolean =>
  record === undefined || record.state === "provisioning"

const exists = (facts: VolumeFacts | undefined): boolean =>
  facts?.record !== undefined && facts.record.state !== "deleted"

/** Whether the document asks for a smaller volume than there is: it stays as it is. */
export const shrinks = (wanted: DesiredVolume, facts: VolumeFacts | undefined): boolean =>
  wanted.desiredState === "present" &&
  facts?.record?.state === "ready" &&
  wanted.sizeBytes < facts.record.sizeBytes

/** Whether the document asks for a larger volume than there is. */
export const grows = (wanted: DesiredVolume, facts: VolumeFacts | undefined): boolean =>
  wanted.desiredState === "present" &&
  facts?.record?.state === "ready" &&
  wanted.sizeBytes > facts.record.sizeBytes

const needsProvisioning = (wanted: DesiredVolume, facts: VolumeFacts | undefined): boolean =>
  facts?.record?.state !== "ready" || grows(wanted, facts)

/** A snapshot uses its volume as a microVM does: it holds what the guest knows of it. */
const usedByMachine = (facts: AppFacts, volumeId: VolumeId): boolean =>
  (facts.machineUp || facts.record?.asleep?.machine !== undefined) &&
  facts.record?.instance?.volumeId === volumeId

/** Whether an attempt on the one is an attempt on the other. */
export const sameVolume = (left: DesiredVolume, right: DesiredVolume): boolean =>
  left.desiredState === right.desiredState &&
  left.sizeBytes === right.sizeBytes &&
  left.initialContents?.digest === right.initialContents?.digest

/** A volume's next step, or when to look at it again. */
const planVolume = (facts: AppFacts, wanted: DesiredVolume): Plan => {
  const known = facts.volumes.get(wanted.volumeId)
  if (wanted.desiredState === "absent") {
    const kept = facts.instance?.volumeId === wanted.volumeId
    if (kept || usedByMachine(facts, wanted.volumeId) || !exists(known)) return wait()
  } else if (!needsProvisioning(wanted, known) || usedByMachine(facts, wanted.volumeId)) {
    return wait()
  }
  const failure = known?.failure
  if (failure !== undefined && sameVolume(failure.wanted, wanted) && facts.now < failure.retryAt) {
    return wait(failure.retryAt)
  }
  return wanted.desiredState === "absent"
    ? step({ kind: "delete-volume", volumeId: wanted.volumeId })
    : step({ kind: "provision-volume", volume: wanted })
}

const planInstance = (facts: AppFacts, instance: DesiredInstance): Plan => {
  const { record, now } = facts
  if (facts.refusal !== undefined) return wait()
  if (record === undefined) {
    const due = facts.slotRetryAt ?? now
    return now < due ? wait(due) : step({ kind: "claim-slot" })
  }
  if (!wantsMachine(instance) || facts.machineUp) return wait()
  if (dormant(record, instance, facts.machineUp)) {
    const patient = instance.desiredState === "running"
    return patient || facts.wakeWanted ? step({ kind: "wake", instance, slot: record.slot, patient }) : wait()
  }
  const volume = facts.volumes.get(instance.volumeId)
  if (volume?.record?.state !== "ready") return wait()
  const failure = failureOf(record, instance)
  if (failure === undefined) return step({ kind: "start", instance, slot: record.slot })
  const attempts = attemptsOf(record, instance)
  if (!mayStart(instance.config.restartPolicy, attempts)) return wait()
  // A budget that was earned back (0 attempts) owes no wait.
  // Nor does a failure of the future: the clock was set back since.
  const due =
    attempts === 0 || failure.at > now ? now : failure.at + backoffMs(instance.config.restartPolicy, attempts)
  return now < due ? wait(due) : step({ kind: "start", instance, slot: record.slot })
}

const planAbsentInstance = (facts: AppFacts): Plan => {
  const { record } = facts
  const named = facts.desiredVolumes.some((volume) => exists(facts.volumes.get(volume.volumeId)))
  if (record === undefined) return wait()
  if (!named) return step({ kind: "release" })
  return record.instance === undefined ? wait() : step({ kind: "retire" })
}

const sooner = (left: number | undefined, right: number | undefined): number | undefined =>
  left === undefined ? right : right === undefined ? left : Math.min(left, right)

/** A release on another volume than the one before takes no place before that is made: it may not come to be. */
const lacksVolume = ({ record, volumes }: AppFacts, { volumeId }: DesiredInstance): boolean =>
  record?.instance?.volumeId !== volumeId && volumes.get(volumeId)?.record?.state !== "ready"

/** A release that cannot be fetched, or that this host does not run, replaces none: the old one serves on. */
const planReplacement = (facts: AppFacts, instance: DesiredInstance, replace: Plan): Plan => {
  const { replacement, refusal, now } = facts
  if (refusal !== undefined) return wait()
  const fetchFirst = step({ kind: "fetch-layers", instance })
  if (replacement?.deploymentId !== instance.deploymentId) return fetchFirst
  const { failure } = replacement
  if (failure === undefined) return replace
  return now < failure.retryAt ? wait(failure.retryAt) : fetchFirst
}

const planMachine = (facts: AppFacts): Plan | undefined => {
  const { instance } = facts
  const reason = stopReason(facts)
  if (reason === "superseded" && instance !== undefined)
    return lacksVolume(facts, instance)
      ? wait()
      : planReplacement(facts, instance, step({ kind: "stop", reason }))
  if (reason !== undefined) return step({ kind: "stop", reason })
  return facts.sleepDue === undefined || instance?.desiredState !== "on-request"
    ? undefined
    : step({ kind: "sleep", reason: facts.sleepDue })
}

/** The next step for the app, when nothing else is under way for it. */
export const plan = (facts: AppFacts): Plan => {
  if (facts.strayMachine) return step({ kind: "end-stray" })
  let until: number | undefined
  if (facts.machineUp) {
    const next = planMachine(facts)
    if (next?.kind === "step") return next
    if (next?.kind === "wait") until = next.until
  }
  const { record, instance } = facts
  if (record?.asleep !== undefined && !dormant(record, instance, facts.machineUp)) {
    const discard = step({ kind: "discard-snapshot" })
    // Who goes back to the release that sleeps, since the new one cannot be fetched, finds it as it was.
    const replaced = instance !== undefined && wantsMachine(instance) && record.asleep.machine !== undefined
    return replaced ? planReplacement(facts, instance, discard) : discard
  }
  for (const wanted of facts.desiredVolumes) {
    const next = planVolume(facts, wanted)
    if (next.kind === "step") return next
    if (next.kind === "wait") until = sooner(until, next.until)
  }
  const next = facts.instance === undefined ? planAbsentInstance(facts) : planInstance(facts, facts.instance)
  if (next.kind === "step") return next
  const stale = [...facts.volumes].find(
    ([volumeId, known]) =>
      (known.record?.state === "deleted" || isUnmade(known.record)) &&
      !facts.desiredVolumes.some((volume) => volume.volumeId === volumeId)
  )
  if (stale !== undefined) return step({ kind: "forget-volume", volumeId: stale[0] })
  const nothingLeft =
    facts.instance === undefined &&
    facts.desiredVolumes.length === 0 &&
    facts.record === undefined &&
    facts.volumes.size === 0
  if (nothingLeft) return { kind: "end" }
  return wait(next.kind === "wait" ? sooner(until, next.until) : until)
}

const bootsOtherwise = (left: DesiredInstance, right: DesiredInstance): boolean =>
  left.volumeId !== right.volumeId ||
  !sameJson(left.layers, right.layers) ||
  !sameJson(left.config, right.config)

const volumeStepIsDue = (facts: AppFacts): boolean =>
  facts.desiredVolumes.some((wanted) => planVolume(facts, wanted).kind === "step")

/**
 * Whether a step that is under way is still what the facts ask for. A step that is not is interrupted and
 * unwinds; the planner is asked again. A stop is always carried to its end.
 *
 * @param waiting a start that has done nothing yet but wait for its turn: it takes up what the document says
 *   meanwhile, and lets the app's volumes go first
 */
export const stillWanted = (running: Step, facts: AppFacts, waiting = false): boolean => {
  switch (running.kind) {
    case "start":
      return (
        facts.instance !== undefined &&
        facts.refusal === undefined &&
        wantsMachine(facts.instance) &&
        facts.instance.deploymentId === running.instance.deploymentId &&
        !(waiting && (bootsOtherwise(facts.instance, running.instance) || volumeStepIsDue(facts)))
      )
    case "wake":
      return (
        facts.instance !== undefined &&
        facts.refusal === undefined &&
        wantsMachine(facts.instance) &&
        facts.instance.deploymentId === running.instance.deploymentId
      )
    case "fetch-layers":
      return (
        facts.instance !== undefined &&
        facts.refusal === undefined &&
        wantsMachine(facts.instance) &&
        facts.instance.deploymentId === running.instance.deploymentId &&
        sameJson(facts.instance.layers, running.instance.layers)
      )
    case "provision-volume": {
      const wanted = facts.desiredVolumes.find((volume) => volume.volumeId === running.volume.volumeId)
      return wanted !== undefined && wanted.desiredState === "present" && sameVolume(wanted, running.volume)
    }
    default:
      return true
  }
}
