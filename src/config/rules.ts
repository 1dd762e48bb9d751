/**
 * What the keys of `config.toml` mean to each other. Like the document's rules, they read what was written and skip
 * what they cannot read, so that they are told together with what the schema finds.
 */
import type { Path, Problem } from "../document/problems.ts"
import { MAX_SLOTS, slotPortRange } from "./ports.ts"

/** ZeroFS serves its own metrics here, on every host that runs it. */
export const ZEROFS_METRICS_PORT = 9091

const member = (value: unknown, path: Path): unknown =>
  path.reduce<unknown>(
    (found, key) =>
      typeof found === "object" && found !== null && Object.hasOwn(found, key)
        ? (found as Readonly<Record<string | number, unknown>>)[key]
        : undefined,
    value
  )

type Report = (path: Path, message: string, at?: Problem["at"]) => void

const backend = (config: unknown, report: Report) => {
  const chosen = member(config, ["volumes", "backend"])
  const zerofs = member(config, ["volumes", "zerofs"])
  if (chosen === "local-file" && zerofs !== undefined)
    report(
      ["volumes", "zerofs"],
      'volumes.zerofs has no meaning with volumes.backend = "local-file": remove the section, or choose "zerofs"',
      "key"
    )
  if (chosen !== "zerofs") return
  if (zerofs === undefined)
    report(
      ["volumes", "zerofs"],
      'volumes.zerofs is missing; volumes.backend = "zerofs" needs the section',
      "missing"
    )
  if (member(config, ["exports"]) === undefined)
    report(["exports"], 'exports is missing; volumes.backend = "zerofs" needs the section', "missing")
}

const ports = (config: unknown, report: Report) => {
  const maxApps = member(config, ["max_apps"])
  const proxy = member(config, ["proxy", "http", "port"])
  const metrics = member(config, ["metrics", "port"])
  const taken = (path: Path, port: unknown) => {
    if (typeof maxApps !== "number" || maxApps < 1 || maxApps > MAX_SLOTS || typeof port !== "number") return
    const { first, last } = slotPortRange(maxApps)
    if (port >= first && port <= last)
      report(
        path,
        `${path.join(".")} is ${port}, but with max_apps = ${maxApps} the ports ${first} to ${last} belong to apps`
      )
  }
  taken(["proxy", "http", "port"], proxy)
  taken(["metrics", "port"], metrics)
  if (typeof metrics !== "number") return
  if (metrics === proxy) report(["metrics", "port"], `metrics.port is ${metrics}, as is proxy.http.port`)
  if (metrics === ZEROFS_METRICS_PORT && member(config, ["volumes", "backend"]) === "zerofs")
    report(
      ["metrics", "port"],
      `metrics.port is ${metrics}, which is ZeroFS's own with volumes.backend = "zerofs"`
    )
}

const hypervisor = (config: unknown, report: Report) => {
  if (
    member(config, ["hypervisor", "backend"]) === "firecracker" &&
    member(config, ["hypervisor", "network"]) === "user"
  )
    report(
      ["hypervisor", "network"],
      'hypervisor.network is "user", which only QEMU has: with hypervisor.backend = "firecracker" it must be "tap"'
    )
}

/** Of each of these the daemon removes what it takes for its own leavings. */
const OWN_DIRECTORIES: ReadonlyArray<Path> = [
  ["paths", "state_dir"],
  ["paths", "runtime_dir"],
  ["paths", "snapshot_dir"],
  ["volumes", "zerofs", "checkpoint_runtime_dir"]
]

const directories = (config: unknown, report: Report) => {
  const seen = new Map<string, Path>()
  for (const path of OWN_DIRECTORIES) {
    const directory = member(config, path)
    if (typeof directory !== "string") continue
    const plain = directory
      .trim()
      .replaceAll(/\/+/gu, "/")
      .replace(/(?<=.)\/$/u, "")
    const first = seen.get(plain)
    if (first === undefined) seen.set(plain, path)
    else
      report(
        path,
        `${path.join(".")} is ${plain}, as is ${first.join(".")}: each needs a directory of its own`
      )
  }
}

/** Every problem between the keys of a file, of which only needs to be known that it is TOML. */
export const ruleProblems = (config: unknown): ReadonlyArray<Problem> => {
  const problems: Array<Problem> = []
  const report: Report = (path, message, at = "value") => problems.push({ path, message, at })
  backend(config, report)
  ports(config, report)
  hypervisor(config, report)
  directories(config, report)
  return problems
}
