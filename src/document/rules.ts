/**
 * What the parts of a document may mean to each other. The rules read the document as it was written, so that
 * they find their problems also where some other part does not decode: what a rule cannot read, it skips.
 */
import type { Path, Problem } from "./problems.ts"
import { quote } from "./problems.ts"
import { VARIABLE_NAME } from "./schema.ts"

type Json = unknown

const field = (value: Json, key: string): Json =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.hasOwn(value, key)
    ? (value as Readonly<Record<string, Json>>)[key]
    : undefined

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

type Report = (path: Path, message: string, at?: Problem["at"]) => void

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
  const first = new Map<string, Path>()
  list(document, "instances").forEach((instance, index) => {
    list(instance, "hostnames").forEach((entry, position) => {
      const hostname = text(entry, "hostname")
      if (hostname === undefined) return
      const earlier = first.get(hostname)
      const path = ["instances", index, "hostnames", position, "hostname"]
      if (earlier === undefined) first.set(hostname, path)
      else report(path, `hostname ${quote(hostname)} is named twice: ${toPointer(earlier)} has it already`)
    })
  })
}

/** Whose each volume is: all the apps that a volume's entries name, so that a duplicate is reported only as one. */
const ownersOf = (document: Json): ReadonlyMap<string, ReadonlySet<string | undefined>> => {
  const owners = new Map<string, Set<string | undefined>>()
  for (const volume of list(document, "volumes")) {
    const volumeId = text(volume, "volumeId")
    if (volumeId === undefined) continue
    const apps = owners.get(volumeId)
    if (apps === undefined) owners.set(volumeId, new Set([text(volume, "appId")]))
    else apps.add(text(volume, "appId"))
  }
  return owners
}

const references = (document: Json, report: Report) => {
  if (!Array.isArray(field(document, "volumes"))) return
  const owners = ownersOf(document)
  // A volume whose id cannot be read may be the one that is meant.
  const allNamed = list(document, "volumes").every((volume) => text(volume, "volumeId") !== undefined)

  const belongs = (path: Path, what: string, volumeId: string, appId: string | undefined) => {
    const apps = owners.get(volumeId)
    if (apps === undefined || appId === undefined || apps.has(appId) || apps.has(undefined)) return
    const [owner] = apps
    report(
      path,
      `${what} volume ${quote(volumeId)} belongs to app ${quote(owner ?? "")}, not to ${quote(appId)}`
    )
  }

  list(document, "instances").forEach((instance, index) => {
    const volumeId = text(instance, "volumeId")
    if (volumeId === undefined) return
    const path = ["instances", index, "volumeId"]
    if (allNamed && !owners.has(volumeId))
      report(path, `volumeId ${quote(volumeId)} is not among the volumes of this document`)
    belongs(path, "the instance's", volumeId, text(instance, "appId"))
  })
  list(document, "exports").forEach((entry, index) => {
    const volumeId = text(entry, "volumeId")
    if (volumeId !== undefined)
      belongs(["exports", index, "volumeId"], "the export's", volumeId, text(entry, "appId"))
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
        `sleepWhen ${quote(kind)} is only for an "on-request" instance, but this one is ${quote(state)}`
      )
  })
}

const environmentNames = (document: Json, report: Report) => {
  const check = (environment: Json, path: Path) => {
    if (typeof environment !== "object" || environment === null || Array.isArray(environment)) return
    for (const name of Object.keys(environment))
      if (!VARIABLE_NAME.test(name))
        report(
          [...path, name],
          `${quote(name)} is not a variable's name: a letter or '_', then letters, digits and '_'`,
          "key"
        )
  }
  list(document, "instances").forEach((instance, index) => {
    check(field(field(field(instance, "config"), "command"), "environment"), [
      "instances",
      index,
      "config",
      "command",
      "environment"
    ])
  })
  list(document, "exports").forEach((entry, index) => {
    check(field(entry, "environment"), ["exports", index, "environment"])
  })
}

/** The first `limit` problems between the parts of a document, of which only needs to be known that it is JSON. */
export const ruleProblems = (document: unknown, limit: number): ReadonlyArray<Problem> => {
  const problems: Array<Problem> = []
  const report: Report = (path, message, at = "value") => {
    if (problems.length < limit) problems.push({ path, message, at })
  }
  duplicateIds(document, "volumes", "volumeId", report)
  duplicateIds(document, "instances", "appId", report)
  duplicateIds(document, "checkpoints", "checkpointId", report)
  duplicateIds(document, "exports", "exportId", report)
  duplicateHostnames(document, report)
  references(document, report)
  activation(document, report)
  environmentNames(document, report)
  return problems
}
