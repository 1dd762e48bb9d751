/**
 * What the parts of a document may mean to each other. The rules read the document as it was written, so that
 * they find their problems also where some other part does not decode: what a rule cannot read, it skips.
 */
import type { Path, Problem } from "./problems.ts"
import { quote } from "./quote.ts"
import { variableNameProblem } from "./variables.ts"

type Json = unknown

// No key that is asked for is a property that every object has, and a list has none of them.
const field = (value: Json, key: string): Json =>
  typeof value === "object" && value !== null ? (value as Readonly<Record<string, Json>>)[key] : undefined

const text = (value: Json, key: string): string | undefined => {
  const found = field(value, key)
  return typeof found === "string" ? found : undefined
}

const list = (value: Json, key: string): ReadonlyArray<Json> => {
  const found = field(value, key)
  return Array.isArray(found) ? found : []
}

/** A JSON pointer (RFC 6901). */
export const toPointer = (path: Path): string =>
  path.map((key) => `/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("")

type Report = (path: Path, message: string) => void

const duplicateIds = (document: Json, collection: string, key: string, report: Report) => {
  const first = new Map<string, number>()
  list(document, collection).forEach((item, index) => {
    const id = text(item, key)
    if (id === undefined) return
    const earlier = first.get(id)
    if (earlier === undefined) first.set(id, index)
    else
      report(
        [collection, index, key],
        `${key} ${quote(id)} is named twice: ${toPointer([collection, earlier])} has it already`
      )
  })
}

const duplicateHostnames = (document: Json, report: Report) => {
  const place = (index: number, position: number) => ["instances", index, "hostnames", position, "hostname"]
  const first = new Map<string, readonly [index: number, position: number]>()
  list(document, "instances").forEach((instance, index) => {
    list(instance, "hostnames").forEach((entry, position) => {
      const hostname = text(entry, "hostname")
      if (hostname === undefined) return
      const earlier = first.get(hostname)
      if (earlier === undefined) first.set(hostname, [index, position])
      else
        report(
          place(index, position),
          `hostname ${quote(hostname)} is named twice: ${toPointer(place(...earlier))} has it already`
        )
    })
  })
}

/**
 * Whose each volume is. A volume that is named twice may be either's: that it is named twice is reported already. There are
 * thousands, of which hardly one is: so only those have a set.
 */
const ownersOf = (document: Json) => {
  const first = new Map<string, string | undefined>()
  const others = new Map<string, Set<string | undefined>>()
  for (const volume of list(document, "volumes")) {
    const volumeId = text(volume, "volumeId")
    if (volumeId === undefined) continue
    const appId = text(volume, "appId")
    if (!first.has(volumeId)) first.set(volumeId, appId)
    else if (others.has(volumeId)) others.get(volumeId)?.add(appId)
    else others.set(volumeId, new Set([appId]))
  }
  return { first, others }
}

const references = (document: Json, report: Report) => {
  if (!Array.isArray(field(document, "volumes"))) return
  const owners = ownersOf(document)
  // A volume whose id cannot be read may be the one that is meant.
  const allNamed = list(document, "volumes").every((volume) => text(volume, "volumeId") !== undefined)

  const isOthers = (volumeId: string, appId: string | undefined) => {
    if (appId === undefined || !owners.first.has(volumeId)) return false
    const first = owners.first.get(volumeId)
    const others = owners.others.get(volumeId)
    const may = (app: string | undefined) => first === app || others?.has(app) === true
    return !may(appId) && !may(undefined)
  }
  const belonging = (what: string, volumeId: string, appId: string | undefined) =>
    `the ${what}'s volume ${quote(volumeId)} belongs to app ${quote(owners.first.get(volumeId) ?? "")}, not to ${quote(appId ?? "")}`

  list(document, "instances").forEach((instance, index) => {
    const volumeId = text(instance, "volumeId")
    if (volumeId === undefined) return
    const appId = text(instance, "appId")
    if (allNamed && !owners.first.has(volumeId))
      report(
        ["instances", index, "volumeId"],
        `volumeId ${quote(volumeId)} is not among the volumes of this document`
      )
    else if (isOthers(volumeId, appId))
      report(["instances", index, "volumeId"], belonging("instance", volumeId, appId))
  })
  list(document, "exports").forEach((entry, index) => {
    const volumeId = text(entry, "volumeId")
    const appId = text(entry, "appId")
    if (volumeId !== undefined && isOthers(volumeId, appId))
      report(["exports", index, "volumeId"], belonging("export", volumeId, appId))
  })
}

const sleepKinds = new Set(["traffic-idle", "max-lifetime"])

const activation = (document: Json, report: Report) => {
  list(document, "instances").forEach((instance, index) => {
    const policy = field(instance, "activation") ?? undefined
    const idleTimeout = field(instance, "idleTimeoutMs") ?? undefined
    if (policy !== undefined && idleTimeout !== undefined)
      report(
        ["instances", index],
        "activation and idleTimeoutMs say the same thing twice: name only one of them"
      )
    const state = text(instance, "desiredState")
    const kind = text(field(policy, "sleepWhen"), "kind")
    if (kind !== undefined && sleepKinds.has(kind) && (state === "running" || state === "stopped"))
      report(
        ["instances", index, "activation", "sleepWhen"],
        `sleepWhen ${quote(kind)} is only for an "on-request" instance, but this one is ${quote(state)}: remove activation, or make it { "sleepWhen": { "kind": "never" } }`
      )
  })
}

/**
 * The variables of an instance or export whose names are none. The schema says so too, but only when all the
 * values are fine. Gives the first `limit`.
 */
export const variableNameProblems = (item: unknown, path: Path, limit: number): ReadonlyArray<Problem> => {
  const keys = field(item, "config") === undefined ? ["environment"] : ["config", "command", "environment"]
  const environment = keys.reduce(field, item)
  if (typeof environment !== "object" || environment === null || Array.isArray(environment)) return []
  const problems: Array<Problem> = []
  for (const name of Object.keys(environment)) {
    if (problems.length >= limit) break
    const message = variableNameProblem(name)
    if (message !== undefined) problems.push({ path: [...path, ...keys, name], message, at: "key" })
  }
  return problems
}

/** The first `limit` problems between the parts of a document, of which only needs to be known that it is JSON. */
export const ruleProblems = (document: unknown, limit: number): ReadonlyArray<Problem> => {
  const problems: Array<Problem> = []
  const report: Report = (path, message) => {
    if (problems.length < limit) problems.push({ path, message, at: "value" })
  }
  duplicateIds(document, "volumes", "volumeId", report)
  duplicateIds(document, "instances", "appId", report)
  duplicateIds(document, "checkpoints", "checkpointId", report)
  duplicateIds(document, "exports", "exportId", report)
  duplicateHostnames(document, report)
  references(document, report)
  activation(document, report)
  return problems
}
