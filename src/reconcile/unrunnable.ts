/**
 * What no host runs, makes or cuts although a document may well ask for it: the document is accepted, and the instance,
 * volume or checkpoint fails by itself, at once. `nibrunnerd check` warns of the same in the same words.
 */
import { MAX_RAW_PORTS } from "../config/ports.ts"
import type { Path, Problem } from "../document/problems.ts"
import { referencesIn } from "../document/references.ts"
import type { DesiredInstance, DesiredVolume, HostDesiredState } from "../document/schema.ts"
import { VolumeError } from "../services/VolumeBackend.ts"
import { decideSize } from "../volume/size.ts"
import { primaryHostname } from "./boot-spec.ts"
import { isOwnName, OWN_NAME_REFUSED } from "./own-checkpoints.ts"

/**
 * MiB. Below 80 no guest boots: its kernel panics, or hangs and says nothing. From there on it depends on luck and on how many
 * layers there are; with 96 a guest with eight of them boots each time. A processor takes about 1 MiB more.
 */
export const SMALLEST_MEMORY_MIB = 96

/** One reason, and what of the instance it is about. */
interface Fault {
  readonly path: Path
  readonly message: string
}

/** Takes what is found. Plain calls: a check looks at thousands of instances. */
type Faults = Array<Fault>

const resources = ({ config: { resources } }: DesiredInstance, faults: Faults): void => {
  const { memoryMib, vcpuCount } = resources
  if (vcpuCount === 0)
    faults.push({
      path: ["config", "resources", "vcpuCount"],
      message: "config.resources.vcpuCount is 0: a microVM needs at least 1"
    })
  if (memoryMib < SMALLEST_MEMORY_MIB)
    faults.push({
      path: ["config", "resources", "memoryMib"],
      message: `config.resources.memoryMib is ${memoryMib}: a guest needs at least ${SMALLEST_MEMORY_MIB} MiB to boot`
    })
}

const ports = ({ config }: DesiredInstance, faults: Faults): void => {
  if (config.ports === undefined || config.ports.length === 0) return
  const names = new Set<string>()
  const numbers = new Set<number>()
  config.ports.forEach(({ guestPort, name }, index) => {
    const found = (key: string, message: string) =>
      faults.push({ path: ["config", "ports", index, key], message: `config.ports names ${message}` })
    if (name === "http") found("name", `a port "http", which is config.httpPort's own name`)
    else if (names.has(name)) found("name", `two ports "${name}"`)
    if (guestPort === config.httpPort)
      found("guestPort", `port ${guestPort} (${name}), which is config.httpPort already`)
    else if (numbers.has(guestPort)) found("guestPort", `guest port ${guestPort} twice`)
    names.add(name)
    numbers.add(guestPort)
  })
  const count = config.ports.length
  if (count > MAX_RAW_PORTS)
    faults.push({
      path: ["config", "ports"],
      message: `config.ports names ${count} ports, but an app has at most ${MAX_RAW_PORTS} beside config.httpPort`
    })
}

const countsOfProbes = ["intervalMs", "timeoutMs", "healthyThreshold", "unhealthyThreshold"] as const

const healthCheck = ({ config: { healthCheck: check } }: DesiredInstance, faults: Faults): void => {
  if (check.kind === "boot-completed") return
  if (check.kind === "http" && !/^\/[^\x00-\x20\x7f]*$/u.test(check.path))
    faults.push({
      path: ["config", "healthCheck", "path"],
      message: `config.healthCheck.path must start with "/" and hold no space or control character: it is ${JSON.stringify(check.path.slice(0, 80))}`
    })
  for (const key of countsOfProbes)
    if (check[key] === 0)
      faults.push({
        path: ["config", "healthCheck", key],
        message: `config.healthCheck.${key} is 0: it must be at least 1`
      })
}

const inVariable = (name: string, what: string): Fault => ({
  path: ["config", "command", "environment", name],
  message: `config.command.environment.${name} ${what}`
})

const command = (instance: DesiredInstance, faults: Faults): void => {
  const { args, environment } = instance.config.command
  const nul = "holds a NUL character, which no program can be given"
  args.forEach((arg, index) => {
    if (arg.includes("\0"))
      faults.push({
        path: ["config", "command", "args", index],
        message: `config.command.args[${index}] ${nul}`
      })
  })
  for (const name in environment) {
    const value = environment[name] ?? ""
    if (value.includes("\0")) faults.push(inVariable(name, nul))
    if (
      value.includes("NIBRUN_HOSTNAME") &&
      primaryHostname(instance) === undefined &&
      referencesIn(value).includes("NIBRUN_HOSTNAME")
    )
      faults.push(inVariable(name, "refers to NIBRUN_HOSTNAME, but the instance has no hostname"))
  }
}

const volume = (instance: DesiredInstance, volumes: ReadonlyArray<DesiredVolume>, faults: Faults): void => {
  const named = volumes.find(({ volumeId }) => volumeId === instance.volumeId)
  if (named?.desiredState === "absent")
    faults.push({
      path: ["volumeId"],
      message: `its volume ${instance.volumeId} is marked absent; the volume is kept as long as this instance names it`
    })
}

const collect = (
  instance: DesiredInstance,
  volumes: ReadonlyArray<DesiredVolume>,
  faults: Faults
): Faults => {
  resources(instance, faults)
  ports(instance, faults)
  healthCheck(instance, faults)
  command(instance, faults)
  volume(instance, volumes, faults)
  return faults
}

/** Why no host runs the instance: the first reason, or undefined. `volumes` are the app's. */
export const unrunnable = (
  instance: DesiredInstance,
  volumes: ReadonlyArray<DesiredVolume>
): string | undefined => collect(instance, volumes, [])[0]?.message

/** Why no host makes the volume, in the words of the report. */
const unmakeable = ({ desiredState, sizeBytes, volumeId }: DesiredVolume): string | undefined => {
  const decision = decideSize(undefined, sizeBytes)
  if (desiredState === "absent" || decision.kind !== "refuse") return undefined
  const { operation, reason } = decision
  return new VolumeError({ volumeId, operation, reason }).message
}

const none: ReadonlyArray<DesiredVolume> = []

/** The first `limit` things in a document that no host runs, makes or cuts. */
export const unrunnableIn = (document: HostDesiredState, limit: number): ReadonlyArray<Problem> => {
  const found: Array<Problem> = []
  document.volumes.forEach((volume, index) => {
    const message = unmakeable(volume)
    if (message !== undefined) found.push({ path: ["volumes", index, "sizeBytes"], at: "value", message })
  })
  // Of the volumes an instance is told of those only that are to go.
  const absent = Map.groupBy(
    document.volumes.filter(({ desiredState }) => desiredState === "absent"),
    ({ appId }) => appId
  )
  // Emptied for each instance: of thousands hardly one has a fault.
  const faults: Faults = []
  document.instances.forEach((instance, index) => {
    const { appId } = instance
    if (found.length >= limit) return
    for (const { message, path } of collect(instance, absent.get(appId) ?? none, faults))
      found.push({
        path: ["instances", index, ...path],
        at: "value",
        message: `app ${appId} is not run: ${message}`
      })
    faults.length = 0
  })
  document.checkpoints.forEach(({ checkpointId, desiredState }, index) => {
    if (desiredState === "present" && isOwnName(checkpointId))
      found.push({
        path: ["checkpoints", index, "checkpointId"],
        at: "value",
        message: `checkpoint ${checkpointId} is not cut: ${OWN_NAME_REFUSED}`
      })
  })
  return found.slice(0, limit)
}
