/** From a walk that is over to what is said of the app. Pure. */
import type { DesiredInstance } from "../document/schema.ts"
import { attemptsOf, outOfRestarts, wantsMachine } from "../reconcile/plan.ts"
import type { VolumeRecord } from "../services/HostState.ts"
import type { Action, ActionKind, AppForesight } from "./actions.ts"
import { keptUntilDeployed, takenUpAtOnce } from "./changes.ts"
import type { HostNow } from "./foresee.ts"
import { actionsOf, type Walker } from "./walk.ts"

/** What changes which microVM runs. */
const machineActions: ReadonlySet<ActionKind> = new Set(["boot", "replace", "restart", "stop"])

/** What a microVM that was up before takes up without a new one. */
const updates = (
  app: Walker,
  before: DesiredInstance | undefined,
  actions: ReadonlyArray<Action>
): ReadonlyArray<Action> => {
  if (before === undefined || app.desired.instance === undefined) return []
  const touched = actions.some(({ kind }) => machineActions.has(kind))
  const changes = takenUpAtOnce(before, app.desired.instance).filter(
    (path) => path !== "desiredState" || !touched
  )
  return changes.length === 0 ? [] : [{ kind: "update", changes }]
}

/** Why an app that the document wants up is not started. */
const obstacles = (app: Walker, host: HostNow): ReadonlyArray<Action> => {
  if (app.refusal !== undefined) return [{ kind: "refuse", reason: app.refusal }]
  switch (app.waiting?.for) {
    case "slot":
      return [
        { kind: "wait", for: "slot", reason: `no slot is left: all ${host.maxApps} of max_apps are taken` }
      ]
    case "memory": {
      const { missingMib } = app.waiting
      return [
        {
          kind: "wait",
          for: "memory",
          reason: `the host is ${missingMib} MiB short of the memory that this start needs`
        }
      ]
    }
    default:
      return []
  }
}

const volumeNote = (app: Walker, record: VolumeRecord): string | undefined => {
  const { volumeId, sizeBytes, state } = record
  const { instance, volumes } = app.desired
  if (state === "deleted") return undefined
  const wanted = volumes.find((volume) => volume.volumeId === volumeId)
  if (wanted === undefined) return `volume ${volumeId} is kept: the document does not name it`
  if (wanted.desiredState === "absent") {
    return instance?.volumeId === volumeId
      ? `volume ${volumeId} is kept although it is marked absent: the instance still names it`
      : undefined
  }
  const open = app.machineUp && app.record?.instance?.volumeId === volumeId
  if (open && wanted.sizeBytes > sizeBytes)
    return `volume ${volumeId} grows from ${sizeBytes} to ${wanted.sizeBytes} bytes when its microVM is next replaced or stopped`
  if (open && wanted.sizeBytes < sizeBytes)
    return `volume ${volumeId} keeps its ${sizeBytes} bytes: a volume never shrinks`
  return instance === undefined || instance.volumeId === volumeId
    ? undefined
    : `volume ${volumeId} is in no use: the instance names ${instance.volumeId}`
}

const volumeNotes = (app: Walker): ReadonlyArray<string> =>
  [...app.volumes.values()].flatMap(({ record }) =>
    record === undefined ? [] : (volumeNote(app, record) ?? [])
  )

/** Of a microVM that runs on: what it does not take up. */
const runsOnNotes = (app: Walker, instance: DesiredInstance): ReadonlyArray<string> => {
  const refused = app.refusal === undefined ? [] : ["its microVM runs on as it booted"]
  const booted = app.record?.instance
  const later = booted === undefined ? [] : keptUntilDeployed(booted, instance)
  return later.length === 0
    ? refused
    : [...refused, `taken up with the next deploymentId only: ${later.join(", ")}`]
}

const notStartedNotes = (app: Walker, instance: DesiredInstance): ReadonlyArray<string> => {
  const { record } = app
  if (!wantsMachine(instance) || app.refusal !== undefined || record === undefined) return []
  if (app.volumes.get(instance.volumeId)?.record?.state !== "ready")
    return [`not started: its volume ${instance.volumeId} is not ready`]
  if (!outOfRestarts(record, instance)) return []
  const { maxRestarts } = instance.config.restartPolicy
  const starts = attemptsOf(record, instance)
  return [
    `not started again: all ${maxRestarts} restarts are used up after ${starts} starts (${record.failure?.reason}); a new deploymentId starts it again`
  ]
}

/** @param before the app's instance in the document in force */
export const told = (app: Walker, before: DesiredInstance | undefined, host: HostNow): AppForesight => {
  const actions = actionsOf(app)
  const { instance } = app.desired
  const runsOn = app.machineUp && !actions.some(({ kind }) => machineActions.has(kind))
  return {
    appId: app.appId,
    actions: [...updates(app, before, actions), ...actions, ...obstacles(app, host)],
    runs: app.machineUp,
    notes: [
      ...(instance === undefined
        ? []
        : runsOn
          ? runsOnNotes(app, instance)
          : app.machineUp
            ? []
            : notStartedNotes(app, instance)),
      ...volumeNotes(app)
    ]
  }
}
