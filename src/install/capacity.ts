/** How many apps a machine has room for, by its memory, its disk and its ports. */
import { MAX_SLOTS } from "../config/ports.ts"

/** An app as it is taken to be where nobody knows better. */
const APP_MEMORY_MIB = 256
const APP_VOLUME_MIB = 8192

/** What there is for apps. */
export interface Machine {
  /** MiB of memory that guests may be promised. */
  readonly guestMemoryMib: number
  /** MiB of disk that snapshots may take, and volumes where they are files of this disk; undefined: not to be told. */
  readonly diskMib: number | undefined
  /** Whether volumes are on that disk. */
  readonly localVolumes: boolean
}

/** The most apps by each of the three. */
export interface Capacity {
  /** Apps that are awake at the same time. */
  readonly memory: number
  readonly disk: number | undefined
  readonly ports: number
}

/** Counts apps of 256 MiB of memory, with a snapshot as large, and a volume of 8 GiB. */
export const capacityOf = ({ diskMib, guestMemoryMib, localVolumes }: Machine): Capacity => ({
  memory: Math.max(0, Math.floor(guestMemoryMib / APP_MEMORY_MIB)),
  disk:
    diskMib === undefined
      ? undefined
      : Math.max(0, Math.floor(diskMib / (APP_MEMORY_MIB + (localVolumes ? APP_VOLUME_MIB : 0)))),
  ports: MAX_SLOTS
})

/** `max_apps` of a host that has no configuration yet: 1 to 5567. */
export const fittingApps = ({ disk, memory, ports }: Capacity): number =>
  Math.max(1, Math.min(memory, disk ?? 100, ports))

/** What the count is made of, as a clause. */
export const measured = ({ disk, memory }: Capacity): string =>
  `memory for ${memory} apps of ${APP_MEMORY_MIB} MiB that are awake, ${
    disk === undefined ? "a disk whose room could not be told" : `disk for ${disk}`
  }, ports for ${MAX_SLOTS}`

/** What is to be said of a `max_apps`, in a sentence. */
export const verdictOnApps = (maxApps: number, capacity: Capacity): string => {
  const has = `max_apps is ${maxApps}; this machine has ${measured(capacity)}`
  if (capacity.disk !== undefined && maxApps > capacity.disk)
    return `${has}. A full disk breaks every app: unless volumes stay much smaller than they may be, set max_apps to ${Math.max(1, capacity.disk)}`
  return maxApps > capacity.memory ? `${has}. It counts on some of the apps being asleep` : `${has}`
}
