/**
 * Why this host does not run an instance that its document may well name: the document is fine, this one
 * instance is not, or asks for what the host does not serve. No start is attempted and none is counted.
 */

import type { DesiredInstance, DesiredVolume } from "../document/schema.ts"
import type { HostSettings } from "./settings.ts"
import { unrunnable } from "./unrunnable.ts"

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

const resources = ({ config: { resources } }: DesiredInstance, limits: HostLimits): string | undefined => {
  if (resources.vcpuCount > limits.vcpuCount) {
    return `config.resources.vcpuCount is ${resources.vcpuCount}, but this host has ${limits.vcpuCount}`
  }
  if (resources.memoryMib > limits.memoryMib) {
    return `config.resources.memoryMib is ${resources.memoryMib}, but this host has ${limits.memoryMib} MiB for guests`
  }
  return undefined
}

const ports = ({ config }: DesiredInstance, limits: HostLimits): string | undefined => {
  const count = config.ports?.length ?? 0
  if (count > 0 && limits.rawPortsPerGuest === 0) {
    return "config.ports asks for raw ports, but this host has no [proxy.raw]"
  }
  if (count > limits.rawPortsPerGuest) {
    return `config.ports names ${count} ports, but proxy.raw.max_ports_per_guest is ${limits.rawPortsPerGuest}`
  }
  return undefined
}

/** Why this host does not run an instance that another might. */
const tooMuch = (instance: DesiredInstance, limits: HostLimits): string | undefined => {
  if (instance.hostnames.length > 0 && !limits.servesHttp) {
    return "the instance has hostnames, but this host has no [proxy.http]"
  }
  return resources(instance, limits) ?? ports(instance, limits)
}

/** The sentence, or undefined when the host can run the instance. */
export const refusal = (
  instance: DesiredInstance,
  volumes: ReadonlyArray<DesiredVolume>,
  limits: HostLimits
): string | undefined => unrunnable(instance, volumes) ?? tooMuch(instance, limits)
