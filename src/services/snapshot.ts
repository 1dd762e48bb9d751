/** Whether a snapshot belongs to what is to be woken. */
import type { MachineSpec, SnapshotRecord } from "./Hypervisor.ts"

/** What is to be woken, and on what. */
export interface Sleeper {
  readonly spec: MachineSpec
  readonly deploymentId: string
  readonly hypervisor: string
}

/** The same text for the same values, whatever the order of the keys. */
const text = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) =>
    typeof part === "object" && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part
  )

/** Why the snapshot cannot be woken as this: the first difference, for the operator; none when it can. */
export const snapshotMismatch = (record: SnapshotRecord, wanted: Sleeper): string | undefined => {
  const was = record.spec
  const is = wanted.spec
  const differs = (what: string, a: string | number, b: string | number) =>
    a === b ? undefined : `it was made under ${what} ${a}, and this is ${b}`
  const same = (what: string, a: unknown, b: unknown) =>
    text(a) === text(b) ? undefined : `it was made with ${what}`
  return (
    differs("app", was.appId, is.appId) ??
    differs("deployment", record.deploymentId, wanted.deploymentId) ??
    differs("guest image", was.image.version, is.image.version) ??
    differs("slot", was.slot, is.slot) ??
    differs("hypervisor", record.hypervisor, wanted.hypervisor) ??
    same("another number of CPUs", was.vcpuCount, is.vcpuCount) ??
    same("another size of memory", was.memoryMib, is.memoryMib) ??
    same("other layers", was.layers, is.layers) ??
    same("another volume", was.volume, is.volume) ??
    same("another network", was.link, is.link)
  )
}
