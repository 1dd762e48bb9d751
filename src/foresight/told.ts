/** From a walk that is over to what is said of the app. Pure. */
import type { DesiredInstance } from "../document/schema.ts"
import { attemptsOf, dormant, outOfRestarts, wantsMachine } from "../reconcile/plan.ts"
import { volumeFailure, volumeMessage } from "../reconcile/status.ts"
import type { Action, ActionKind, AppForesight } from "./actions.ts"
import { keptUntilDeployed, takenUpAtOnce } from "./changes.ts"
import type { HostNow } from "./foresee.ts"
import { actionsOf, type Walker } from "./walk.ts"

/** What changes which microVM runs. */
const machineActions: ReadonlySet<ActionKind> = new Set(["boot", "replace", "restart", "stop", "wake"])

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

/** Volumes that cannot be as the document asks. */
const refusedVolumes = (app: Walker): ReadonlyArray<Action> =>
  app.desired.volumes.flatMap((wanted): ReadonlyArray<Action> => {
    const { volumeId } = wanted
    const reason = volumeFailure(wanted, app.volumes.get(volumeId))
    return reason === undefined ? [] : [{ kind: "refuse-volume", volumeId, reason }]
  })

const volumeNotes = (app: Walker): ReadonlyArray<string> => {
  const { appId, desired, machineUp, record, volumes } = app
  const named = desired.volumes.flatMap((wanted) => {
    const known = volumes.get(wanted.volumeId)
    if (volumeFailure(wanted, known) !== undefined) return []
    const attachment = machineUp ? true : undefined
    const message = volumeMessage({ appId, desired, attachment, record }, wanted.volumeId, wanted, known)
    return message === undefined ? [] : [`volume ${wanted.volumeId}: ${message}`]
  })
  const unnamed = [...volumes].flatMap(([volumeId, { record: known }]) =>
    known === undefined ||
    known.state === "deleted" ||
    desired.volumes.some((wanted) => wanted.volumeId === volumeId)
      ? []
      : [`volume ${volumeId} is kept: the document does not name it`]
  )
  return [...named, ...unnamed]
}

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
  if (dormant(record, instance, false)) return ["asleep: it wakes when something comes for it"]
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
    actions: [...updates(app, before, actions), ...actions, ...refusedVolumes(app), ...obstacles(app, host)],
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
