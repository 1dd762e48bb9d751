/** A report as lines for a person. Pure. */
import { rawPortAfter } from "../config/ports.ts"
import type { HostReport, InstanceReport, InstanceState } from "../report/schema.ts"
import type { NextStart } from "./next-starts.ts"
import type { Colour, Paint } from "./paint.ts"
import { printable } from "./printable.ts"
import { type Column, cut, table } from "./table.ts"
import { bytes, counted, duration } from "./units.ts"

export interface StatusOptions {
  readonly report: HostReport
  /** The hostnames of each app; undefined where they cannot be told. */
  readonly hostnames: ReadonlyMap<string, ReadonlyArray<string>> | undefined
  /** The guest ports of each app's raw ports that are in force, in their order; undefined where they cannot be told. */
  readonly rawPorts?: ReadonlyMap<string, ReadonlyArray<number>> | undefined
  /** When each app is started again, if it has failed; undefined where that cannot be told. */
  readonly nextStarts?: ReadonlyMap<string, NextStart> | undefined
  /** Whether a daemon runs; undefined where that cannot be told. */
  readonly daemonRuns?: boolean | undefined
  /** ms since 1970. */
  readonly now: number
  readonly paint: Paint
  /** Columns of the terminal; undefined when nothing is to be cut. */
  readonly width: number | undefined
}

/** What a report is worth that nobody writes. */
export const NO_DAEMON =
  "no daemon runs on this host: this is what the last one reported. The microVMs go on without it"

const old = (daemonRuns: boolean): string =>
  daemonRuns
    ? "the report is old: the daemon runs, but has not reported since"
    : "the report is old: the daemon does not seem to run"

/** The daemon reports once a minute at least. */
const STALE_MS = 150_000

const NOTHING = "-"

/** A text of somebody else's in a cell. */
const cell = (text: string): string => printable(text).replaceAll("\t", " ")

const colours: Record<InstanceState, Colour> = {
  running: "green",
  pending: "yellow",
  starting: "yellow",
  stopping: "yellow",
  unhealthy: "red",
  failed: "red",
  idle: "dim",
  stopped: "dim"
}

/** Since when its microVM is up, or since when it has none as it should be, where the report tells. */
const since = ({ convergedAt, startedAt, state }: InstanceReport): string | undefined =>
  state === "stopped" ? convergedAt : startedAt

/** Why an app is as it is, and when a start comes if it has failed. */
const messageOf = (
  { appId, message = "", state }: InstanceReport,
  { daemonRuns, nextStarts, now }: StatusOptions
): string => {
  const next = state === "failed" && daemonRuns !== false ? nextStarts?.get(appId) : undefined
  if (next === undefined) return cell(message)
  const start =
    next === "none"
      ? "no start is due"
      : next <= now
        ? "starts again now"
        : `starts again in ${duration(next - now)}`
  return cell(message === "" ? start : `${message} (${start})`)
}

/** An app's raw ports as `21001→5432`: the host's port, which carries TCP and UDP, and the guest's. */
const rawPortsOf = ({ appId, hostPort }: InstanceReport, { rawPorts }: StatusOptions): string =>
  hostPort === undefined
    ? ""
    : (rawPorts?.get(appId) ?? [])
        .map((guestPort, position) => `${rawPortAfter(hostPort, position)}→${guestPort}`)
        .join(" ")

/** Shown where an app has raw ports. */
const portsColumn = (options: StatusOptions): ReadonlyArray<Column<InstanceReport>> =>
  options.report.instances.every((instance) => rawPortsOf(instance, options) === "")
    ? []
    : [
        {
          title: "PORTS",
          of: (instance) => rawPortsOf(instance, options) || NOTHING,
          yields: { order: 1, least: 11 }
        }
      ]

const instanceColumns = (options: StatusOptions): ReadonlyArray<Column<InstanceReport>> => [
  { title: "APP", of: ({ appId }) => appId, yields: { order: 3, least: 8 } },
  { title: "STATE", of: ({ state }) => state, colour: ({ state }) => colours[state] },
  {
    title: "SINCE",
    of: (instance) => {
      const at = since(instance)
      return at === undefined ? NOTHING : duration(options.now - Date.parse(at))
    }
  },
  {
    title: "MEMORY",
    right: true,
    of: ({ compute }) => (compute === undefined ? NOTHING : bytes(compute.memoryUsedBytes))
  },
  {
    title: "RESTARTS",
    right: true,
    of: ({ restartCount }) => String(restartCount),
    colour: ({ restartCount }) => (restartCount > 0 ? "yellow" : undefined)
  },
  {
    title: "HOSTNAMES",
    of: ({ appId }) => cell(options.hostnames?.get(appId)?.join(" ") || NOTHING),
    yields: { order: 0, least: 12 }
  },
  ...portsColumn(options),
  {
    title: "MESSAGE",
    of: (instance) => messageOf(instance, options),
    yields: { order: 2, least: 12 }
  }
]

/** What becomes of a volume that the document does not name. */
const DETACHED = "kept: the document does not name it. Named once as absent, it is deleted"

interface Thing {
  readonly kind: string
  readonly id: string
  readonly state: string
  readonly message: string
}

/** Of volumes, checkpoints and exports only what is not as it should be, or is still under way. */
const things = ({ checkpoints, exports, volumes }: HostReport): ReadonlyArray<Thing> => {
  const all: ReadonlyArray<Thing> = [
    ...volumes.map(({ message, state, volumeId }) => ({
      kind: "volume",
      id: volumeId,
      state,
      message: message ?? (state === "detached" ? DETACHED : "")
    })),
    ...checkpoints.map(({ checkpointId, message, state }) => ({
      kind: "checkpoint",
      id: checkpointId,
      state,
      message: message ?? ""
    })),
    ...exports.map(({ exportId, message, state }) => ({
      kind: "export",
      id: exportId,
      state,
      message: message ?? ""
    }))
  ]
  return all.filter(({ message, state }) => state !== "ready" || message !== "")
}

const thingColumns: ReadonlyArray<Column<Thing>> = [
  { title: "KIND", of: ({ kind }) => kind },
  { title: "ID", of: ({ id }) => id, yields: { order: 1, least: 8 } },
  {
    title: "STATE",
    of: ({ state }) => state,
    colour: ({ state }) => (state === "failed" ? "red" : state === "ready" ? undefined : "dim")
  },
  { title: "MESSAGE", of: ({ message }) => cell(message), yields: { order: 0, least: 12 } }
]

/** `3 apps: 2 running, 1 failed`, in the order of the states. */
const counts = (instances: ReadonlyArray<InstanceReport>): string => {
  if (instances.length === 0) return "no apps"
  const states = (Object.keys(colours) as ReadonlyArray<InstanceState>).flatMap((state) => {
    const count = instances.filter((instance) => instance.state === state).length
    return count === 0 ? [] : [`${count} ${state}`]
  })
  return `${counted(instances.length, "app")}: ${states.join(", ")}`
}

/** The report as lines, none longer than the terminal. */
export const renderStatus = (options: StatusOptions): ReadonlyArray<string> => {
  const { now, paint, report, width } = options
  const fitted = (text: string) => (width === undefined ? text : cut(text, width))
  const age = now - Date.parse(report.reportedAt)
  const head = fitted(
    cell(
      `host ${report.hostId} is ${report.state}; ${counts(report.instances)}; reported ${duration(age)} ago`
    )
  )
  const warnings = [
    ...(options.daemonRuns === false ? [NO_DAEMON] : []),
    ...(options.daemonRuns !== false && age > STALE_MS ? [old(options.daemonRuns === true)] : []),
    ...(report.message === null ? [] : [cell(report.message)])
  ]
  const others = things(report)
  return [
    head,
    ...warnings.map((text) => paint("red", fitted(text))),
    ...(report.instances.length === 0
      ? []
      : ["", ...table(instanceColumns(options), report.instances, paint, width)]),
    ...(others.length === 0 ? [] : ["", ...table(thingColumns, others, paint, width)])
  ]
}
