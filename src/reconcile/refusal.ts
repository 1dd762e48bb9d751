/**
 * Why this host does not run an instance that its document may well name: the document is fine, this one
 * instance is not, or asks for what the host does not serve. No start is attempted and none is counted.
 */

import { referencesIn } from "../document/references.ts"
import type { DesiredInstance, DesiredVolume } from "../document/schema.ts"
import { primaryHostname } from "./boot-spec.ts"
import type { HostSettings } from "./settings.ts"

/** What the host has, as far as an instance may ask for too much of it. */
export interface HostLimits {
  readonly servesHttp: boolean
  readonly rawPortsPerGuest: number
  readonly vcpuCount: number
  /** MiB that guests may be promised in all. */
  readonly memoryMib: number
}

/** What a host of this size, configured so, may give to guests. */
export const limitsOf = (
  host: { readonly vcpuCount: number; readonly memoryMib: number },
  settings: Pick<HostSettings["Service"], "servesHttp" | "rawPortsPerGuest" | "reservedMemoryMib">
): HostLimits => ({
  servesHttp: settings.servesHttp,
  rawPortsPerGuest: settings.rawPortsPerGuest,
  vcpuCount: host.vcpuCount,
  memoryMib: Math.max(0, host.memoryMib - settings.reservedMemoryMib)
})

const twice = <A>(values: ReadonlyArray<A>): A | undefined =>
  values.find((value, index) => values.indexOf(value) !== index)

const resources = ({ config: { resources } }: DesiredInstance, limits: HostLimits): string | undefined => {
  if (resources.vcpuCount === 0) return "config.resources.vcpuCount is 0: a microVM needs at least 1"
  if (resources.vcpuCount > limits.vcpuCount) {
    return `config.resources.vcpuCount is ${resources.vcpuCount}, but this host has ${limits.vcpuCount}`
  }
  if (resources.memoryMib === 0) return "config.resources.memoryMib is 0: a microVM needs memory"
  if (resources.memoryMib > limits.memoryMib) {
    return `config.resources.memoryMib is ${resources.memoryMib}, but this host has ${limits.memoryMib} MiB for guests`
  }
  return undefined
}

const ports = ({ config }: DesiredInstance, limits: HostLimits): string | undefined => {
  const named = config.ports ?? []
  const reserved = named.find((port) => port.name === "http")
  if (reserved !== undefined) return `config.ports names a port "http", which is config.httpPort's own name`
  const http = named.find((port) => port.guestPort === config.httpPort)
  if (http !== undefined) {
    return `config.ports names port ${http.guestPort} (${http.name}), which is config.httpPort already`
  }
  const name = twice(named.map((port) => port.name))
  if (name !== undefined) return `config.ports names two ports "${name}"`
  const number = twice(named.map((port) => port.guestPort))
  if (number !== undefined) return `config.ports names guest port ${number} twice`
  if (named.length > 0 && limits.rawPortsPerGuest === 0) {
    return "config.ports asks for raw ports, but this host has no [proxy.raw]"
  }
  if (named.length > limits.rawPortsPerGuest) {
    return `config.ports names ${named.length} ports, but proxy.raw.max_ports_per_guest is ${limits.rawPortsPerGuest}`
  }
  return undefined
}

const healthCheck = ({ config: { healthCheck: check } }: DesiredInstance): string | undefined => {
  if (check.kind === "boot-completed") return undefined
  if (check.kind === "http" && !/^\/[^\x00-\x20\x7f]*$/u.test(check.path)) {
    return `config.healthCheck.path must start with "/" and hold no space or control character: it is ${JSON.stringify(check.path.slice(0, 80))}`
  }
  const positive = ["intervalMs", "timeoutMs", "healthyThreshold", "unhealthyThreshold"] as const
  const zero = positive.find((field) => check[field] === 0)
  return zero === undefined ? undefined : `config.healthCheck.${zero} is 0: it must be at least 1`
}

const references = (instance: DesiredInstance): string | undefined => {
  if (primaryHostname(instance) !== undefined) return undefined
  const dangling = Object.entries(instance.config.command.environment).find(([, value]) =>
    referencesIn(value).includes("NIBRUN_HOSTNAME")
  )
  return dangling === undefined
    ? undefined
    : `config.command.environment.${dangling[0]} refers to NIBRUN_HOSTNAME, but the instance has no hostname`
}

const volume = (instance: DesiredInstance, volumes: ReadonlyArray<DesiredVolume>): string | undefined => {
  const named = volumes.find(({ volumeId }) => volumeId === instance.volumeId)
  return named?.desiredState === "absent"
    ? `its volume ${instance.volumeId} is marked absent; the volume is kept as long as this instance names it`
    : undefined
}

/** The sentence, or undefined when the host can run the instance. */
export const refusal = (
  instance: DesiredInstance,
  volumes: ReadonlyArray<DesiredVolume>,
  limits: HostLimits
): string | undefined => {
  if (instance.hostnames.length > 0 && !limits.servesHttp) {
    return "the instance has hostnames, but this host has no [proxy.http]"
  }
  return (
    resources(instance, limits) ??
    ports(instance, limits) ??
    healthCheck(instance) ??
    references(instance) ??
    volume(instance, volumes)
  )
}
