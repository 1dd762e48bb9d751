/** A plan in words, or as JSON. Pure. */
import type { Action, ActionKind, AppForesight } from "../foresight/actions.ts"
import type { Colour, Paint } from "./paint.ts"
import { printable } from "./printable.ts"
import { bytes, counted } from "./units.ts"

export interface Plan {
  readonly file: string
  readonly hostId: string
  readonly revision: string | undefined
  /** The document in force; undefined when there is none. */
  readonly inForce:
    | {
        readonly hostId: string
        readonly digest: string
        readonly revision: string | undefined
        readonly same: boolean
      }
    | undefined
  /** No daemon has run on this host. */
  readonly isNew: boolean
  readonly apps: ReadonlyArray<AppForesight>
}

/** In the order in which they are counted. */
const kinds: ReadonlyArray<ActionKind> = [
  "create-volume",
  "grow-volume",
  "delete-volume",
  "refuse-volume",
  "boot",
  "replace",
  "restart",
  "wake",
  "discard-memory",
  "stop",
  "update",
  "forget",
  "refuse",
  "wait"
]

const countsOf = (apps: ReadonlyArray<AppForesight>): ReadonlyArray<readonly [ActionKind, number]> =>
  kinds.map((kind) => [
    kind,
    apps.flatMap(({ actions }) => actions.filter((action) => action.kind === kind)).length
  ])

const changes = ({ actions }: AppForesight): boolean => actions.length > 0

const time = (ms: number): string => new Date(ms).toISOString()

const actionJson = (action: Action) =>
  action.kind === "restart" && action.notBefore !== undefined
    ? { ...action, notBefore: time(action.notBefore) }
    : action

/** One object on one line; docs/cli.md says what is in it. */
export const planJson = ({ apps, file, hostId, inForce, revision }: Plan): string =>
  JSON.stringify({
    file,
    valid: true,
    hostId,
    ...(revision === undefined ? {} : { revision }),
    inForce:
      inForce === undefined
        ? null
        : {
            digest: inForce.digest,
            ...(inForce.revision === undefined ? {} : { revision: inForce.revision }),
            same: inForce.same
          },
    apps: apps.map(({ actions, appId, notes, runs }) => ({
      appId,
      actions: actions.map(actionJson),
      runs,
      notes
    })),
    counts: { ...Object.fromEntries(countsOf(apps)), nothing: apps.filter((app) => !changes(app)).length }
  })

/** At most so many changed paths are shown of one app. */
const SHOWN_PATHS = 6

const paths = (all: ReadonlyArray<string>): string =>
  all.length <= SHOWN_PATHS
    ? all.join(", ")
    : `${all.slice(0, SHOWN_PATHS).join(", ")} and ${all.length - SHOWN_PATHS} more`

const sentence = (action: Action): string => {
  switch (action.kind) {
    case "create-volume":
      return `create volume ${action.volumeId}, ${bytes(action.sizeBytes)}`
    case "grow-volume":
      return `grow volume ${action.volumeId} from ${bytes(action.fromBytes)} to ${bytes(action.toBytes)}; its filesystem grows as the app boots`
    case "delete-volume":
      return `delete volume ${action.volumeId}, ${bytes(action.sizeBytes)}${action.dataLost ? ": ITS DATA IS LOST" : ", which was never made whole"}`
    case "refuse-volume":
      return action.reason
    case "boot":
      return `boot ${action.deploymentId}: ${action.reason}`
    case "replace": {
      const also = action.changes.length === 0 ? "" : `; also ${paths(action.changes)}`
      return `replace ${action.fromDeploymentId} by ${action.toDeploymentId}: deploymentId changes${also}`
    }
    case "restart":
      return `restart ${action.deploymentId}${action.notBefore === undefined ? "" : ` at ${time(action.notBefore)}, by its restart policy`}: ${action.reason}`
    case "wake":
      return `wake ${action.deploymentId}: ${action.reason}`
    case "discard-memory":
      return `discard what it holds in memory as it sleeps: ${action.reason}`
    case "stop":
      return `stop: ${action.reason}`
    case "update":
      return `take up at once: ${paths(action.changes)}`
    case "forget":
      return `forget: ${action.reason}`
    case "refuse":
      return `refuse: ${action.reason}`
    case "wait":
      return `wait for ${action.for === "memory" ? "memory" : "a slot"}: ${action.reason}`
  }
}

interface Mark {
  readonly sign: string
  readonly colour: Colour
}

const adds: Mark = { sign: "+", colour: "green" }
const alters: Mark = { sign: "~", colour: "yellow" }
const takes: Mark = { sign: "-", colour: "red" }
const fails: Mark = { sign: "!", colour: "red" }

const marks: Record<ActionKind, Mark> = {
  "create-volume": adds,
  boot: adds,
  "grow-volume": alters,
  replace: alters,
  restart: alters,
  update: alters,
  wake: adds,
  "discard-memory": takes,
  stop: takes,
  forget: takes,
  "delete-volume": takes,
  "refuse-volume": fails,
  refuse: fails,
  wait: fails
}

const actionLine = (action: Action, paint: Paint): string => {
  const { colour, sign } = marks[action.kind]
  return paint(colour, printable(`  ${sign} ${sentence(action)}`))
}

const appLines = (app: AppForesight, paint: Paint): ReadonlyArray<string> => [
  paint("bold", app.appId),
  ...(changes(app) ? app.actions.map((action) => actionLine(action, paint)) : ["  = nothing"]),
  ...app.notes.map((note) => printable(`    ${note}`))
]

/** At most so many apps that stay as they are are named. */
const NAMED = 10

const unchanged = (apps: ReadonlyArray<AppForesight>): ReadonlyArray<string> => {
  if (apps.length === 0) return []
  const named = apps.slice(0, NAMED).map(({ appId }) => appId)
  const more = apps.length - named.length
  return ["", `nothing to do for ${named.join(", ")}${more === 0 ? "" : ` and ${counted(more, "more app")}`}`]
}

const heading = ({ hostId, inForce, isNew, revision, file }: Plan): ReadonlyArray<string> => {
  const what = revision === undefined ? file : `${file} (revision ${revision})`
  if (isNew) return [`${what} on this host, on which no daemon has run yet:`]
  if (inForce === undefined) return [`${what} on this host, which has accepted no document yet:`]
  if (inForce.same) return [`${what} is the document in force:`]
  const was = inForce.revision === undefined ? "" : ` (revision ${inForce.revision})`
  return [
    `${what} in place of the document in force${was}:`,
    ...(inForce.hostId === hostId
      ? []
      : [`the host is called ${hostId} from then on; it is ${inForce.hostId} now`])
  ]
}

const totals = (apps: ReadonlyArray<AppForesight>): string => {
  const told = countsOf(apps).flatMap(([kind, count]) => (count === 0 ? [] : [`${count} ${kind}`]))
  return `${counted(apps.length, "app")}: ${told.length === 0 ? "nothing to do" : told.join(", ")}`
}

/** The plan as lines for a person. */
export const renderPlan = (plan: Plan, paint: Paint): ReadonlyArray<string> => {
  const isTold = (app: AppForesight) => changes(app) || app.notes.length > 0
  const told = plan.apps.filter(isTold)
  const rest = plan.apps.filter((app) => !isTold(app))
  return [
    ...heading(plan).map(printable),
    ...told.flatMap((app) => ["", ...appLines(app, paint)]),
    ...unchanged(rest),
    "",
    totals(plan.apps)
  ]
}
