/**
 * What is known of what each app uses: its guest's last words of it, and the meters that they and the time add
 * up to. In memory; `metering.ts` brings it to the host's notes and back.
 */
import type { AppId, VolumeId } from "../document/schema.ts"
import type { GuestUsage } from "../services/Guest.ts"
import type { MeterRecord, Meters } from "../services/HostState.ts"
import { afterHolding, afterReading, elapsedBetween, nothingUsed } from "./meters.ts"
import type { AppStatus } from "./status.ts"

/** What a running guest said of itself. */
export interface Compute {
  readonly memoryTotalBytes: number
  readonly memoryUsedBytes: number
  /** The busy part of its CPUs' time between the last two readings, 0 to 1; none after the first. */
  readonly cpuShare: number | undefined
  /** ms since 1970. */
  readonly measuredAt: number
}

export type VolumeUsage = MeterRecord["volumes"][number]

export interface AppMeasurements {
  /** None while no microVM of the app is up, and before its first reading. */
  readonly compute: Compute | undefined
  readonly meters: Meters
  readonly volumes: ReadonlyArray<VolumeUsage>
}

/** A guest that was asked, and what the host has given it. */
export interface Measured {
  readonly appId: AppId
  readonly machineId: string
  readonly vcpuCount: number
  readonly memoryMib: number
  readonly volumeId: VolumeId
  /** The size of the volume's device; undefined when it is not known. */
  readonly volumeBytes: number | undefined
}

/** What is to be written down. */
export interface Unsaved {
  readonly records: ReadonlyArray<MeterRecord>
  readonly forgotten: ReadonlyArray<AppId>
}

interface Entry {
  record: MeterRecord
  /** What of it is in the host's notes. */
  saved: MeterRecord | undefined
  compute: Compute | undefined
  ticks: { readonly machineId: string; readonly total: number; readonly busy: number } | undefined
}

const unmeasured = (appId: AppId): Entry => ({
  record: { appId, meters: nothingUsed, volumes: [] },
  saved: undefined,
  compute: undefined,
  ticks: undefined
})

/** Why a guest's words cannot be so; undefined when they can. */
const implausible = (guest: Measured, usage: GuestUsage): string | undefined => {
  const memoryBytes = guest.memoryMib * 2 ** 20
  if (usage.memoryTotalBytes === 0 || usage.memoryTotalBytes > memoryBytes)
    return `it says that it has ${usage.memoryTotalBytes} bytes of memory, and was given ${memoryBytes}`
  if (guest.volumeBytes !== undefined && usage.volumeTotalBytes > guest.volumeBytes)
    return `it says that its volume holds ${usage.volumeTotalBytes} bytes, and it was given ${guest.volumeBytes}`
  return undefined
}

const shareOf = (before: Entry["ticks"], now: NonNullable<Entry["ticks"]>): number | undefined => {
  if (before?.machineId !== now.machineId) return undefined
  const total = now.total - before.total
  const busy = now.busy - before.busy
  return total > 0 && busy >= 0 && busy <= total ? busy / total : undefined
}

export class Measurements {
  readonly #entries = new Map<AppId, Entry>()
  /** In the host's notes, and in no document any more. */
  readonly #forgotten = new Set<AppId>()
  #lastPass: number | undefined
  #news = false

  /** What an earlier daemon has written down. */
  load(records: ReadonlyArray<MeterRecord>): void {
    for (const record of records)
      this.#entries.set(record.appId, { ...unmeasured(record.appId), record, saved: record })
  }

  /** The apps that the document names: only these are measured, and what the others have used is forgotten. */
  keepOnly(appIds: ReadonlySet<AppId>): void {
    for (const [appId, entry] of this.#entries) {
      if (appIds.has(appId)) continue
      this.#entries.delete(appId)
      if (entry.saved !== undefined) this.#forgotten.add(appId)
    }
    for (const appId of appIds) if (!this.#entries.has(appId)) this.#entries.set(appId, unmeasured(appId))
  }

  of(appId: AppId): AppMeasurements | undefined {
    const entry = this.#entries.get(appId)
    return entry === undefined
      ? undefined
      : { compute: entry.compute, meters: entry.record.meters, volumes: entry.record.volumes }
  }

  /** Takes what a guest said at a time (ms since 1970). Gives the reason when it is not believed. */
  note(guest: Measured, usage: GuestUsage, at: number): string | undefined {
    const reason = implausible(guest, usage)
    const entry = this.#entries.get(guest.appId)
    if (reason !== undefined || entry === undefined) return reason
    const { machineId } = guest
    const ticks = { machineId, total: usage.cpuTotalTicks, busy: usage.cpuBusyTicks }
    entry.compute = {
      memoryTotalBytes: usage.memoryTotalBytes,
      memoryUsedBytes: usage.memoryUsedBytes,
      cpuShare: shareOf(entry.ticks, ticks),
      measuredAt: at
    }
    entry.ticks = ticks
    const { record } = entry
    const { cpuBusyTicks, receivedBytes, sentBytes } = usage
    const counters = { machineId, at, cpuBusyTicks, receivedBytes, sentBytes }
    const others = record.volumes.filter(({ volumeId }) => volumeId !== guest.volumeId)
    const volume = {
      volumeId: guest.volumeId,
      totalBytes: usage.volumeTotalBytes,
      usedBytes: usage.volumeUsedBytes,
      measuredAt: at
    }
    entry.record = {
      ...record,
      meters: afterReading(record.meters, record.counters, counters, guest.vcpuCount),
      counters,
      volumes: usage.volumeTotalBytes === 0 ? record.volumes : [...others, volume]
    }
    this.#news = true
    return undefined
  }

  /** The microVM is up no more, or not this daemon's to ask. */
  letGo(appId: AppId, machineId: string): void {
    const entry = this.#entries.get(appId)
    if (entry?.ticks?.machineId !== machineId) return
    entry.compute = undefined
    entry.ticks = undefined
  }

  /** Adds the time since the pass before to the meters of every app that the document names. */
  pass(statuses: ReadonlyMap<AppId, AppStatus>, now: number): void {
    const elapsedMs = this.#lastPass === undefined ? 0 : elapsedBetween(this.#lastPass, now)
    this.#lastPass = now
    for (const [appId, entry] of this.#entries) {
      const status = statuses.get(appId)
      if (status === undefined) continue
      const { record } = entry
      const present = status.volumes.filter(({ exists }) => exists)
      const usedBytes = (id: VolumeId) =>
        record.volumes.find(({ volumeId }) => volumeId === id)?.usedBytes ?? 0
      const state = status.instance?.state
      const volumes = present.map(({ volumeId, sizeBytes }) => ({
        sizeBytes,
        usedBytes: usedBytes(volumeId)
      }))
      const kept = record.volumes.filter(({ volumeId }) =>
        present.some((volume) => volume.volumeId === volumeId)
      )
      const meters = afterHolding(record.meters, { state, volumes }, elapsedMs)
      const gone = kept.length < record.volumes.length
      // What has not changed stays the same object: it need not be put into words again.
      if (meters !== record.meters || gone)
        entry.record = { ...record, meters, volumes: gone ? kept : record.volumes }
    }
  }

  get unsaved(): Unsaved {
    const changed = [...this.#entries.values()].filter(({ record, saved }) => record !== saved)
    return { records: changed.map(({ record }) => record), forgotten: [...this.#forgotten] }
  }

  /** What `unsaved` gave is in the host's notes now. */
  saved({ records, forgotten }: Unsaved): void {
    for (const appId of forgotten) this.#forgotten.delete(appId)
    for (const record of records) {
      const entry = this.#entries.get(record.appId)
      // An app that has left meanwhile has left a record behind.
      if (entry === undefined) this.#forgotten.add(record.appId)
      else entry.saved = record
    }
  }

  /** Whether a guest has said anything since this was last asked. */
  takeNews(): boolean {
    const news = this.#news
    this.#news = false
    return news
  }
}
