/**
 * What an app has used, added up. Pure. No sequence of readings, whatever the clock does, makes a meter smaller
 * or larger than 2^53 - 1.
 */
import type { InstanceState } from "../report/schema.ts"
import type { MeterRecord, Meters } from "../services/HostState.ts"

export const nothingUsed: Meters = {
  runningMs: 0,
  idleMs: 0,
  cpuMs: 0,
  rxBytes: 0,
  txBytes: 0,
  diskProvisionedMibSeconds: 0,
  diskUsedMibSeconds: 0
}

/** The most time that counts between two looks: a daemon that was suspended, or a clock that jumped, bills no more. */
const longestPassMs = 10_000

/** `USER_HZ` of every guest is 100. */
const msPerTick = 10
/** 100 Gbit/s: no guest of this host has moved more than that. */
const mostBytesPerMs = 12_500_000
/** Between what a guest read and when the host heard of it. */
const slackMs = 15_000

const add = (sum: number, more: number): number => Math.min(Number.MAX_SAFE_INTEGER, sum + Math.max(0, more))

/** The ms that count between two times of the wall clock. */
export const elapsedBetween = (before: number, now: number): number =>
  Math.min(longestPassMs, Math.max(0, now - before))

const isUp: Record<InstanceState, boolean> = {
  pending: false,
  starting: true,
  running: true,
  unhealthy: true,
  idle: false,
  stopping: true,
  stopped: false,
  failed: false
}

/** What an app held while some time passed. */
export interface Held {
  /** Absent when the document names no instance of the app. */
  readonly state: InstanceState | undefined
  /** Of the volumes that exist. */
  readonly volumes: ReadonlyArray<{ readonly sizeBytes: number; readonly usedBytes: number }>
}

const mib = (bytes: number): number => bytes / 2 ** 20

/** The meters after the app has held this for so many ms. */
export const afterHolding = (meters: Meters, { state, volumes }: Held, elapsedMs: number): Meters => {
  const up = state !== undefined && isUp[state]
  // What has not changed stays the same object: it need not be written again.
  if (elapsedMs === 0 || (!up && state !== "idle" && volumes.length === 0)) return meters
  const seconds = elapsedMs / 1000
  const provisioned = volumes.reduce((sum, { sizeBytes }) => sum + mib(sizeBytes), 0)
  const used = volumes.reduce((sum, { sizeBytes, usedBytes }) => sum + mib(Math.min(sizeBytes, usedBytes)), 0)
  return {
    ...meters,
    runningMs: add(meters.runningMs, up ? elapsedMs : 0),
    idleMs: add(meters.idleMs, state === "idle" ? elapsedMs : 0),
    diskProvisionedMibSeconds: add(meters.diskProvisionedMibSeconds, provisioned * seconds),
    diskUsedMibSeconds: add(meters.diskUsedMibSeconds, used * seconds)
  }
}

export type Counters = NonNullable<MeterRecord["counters"]>

/** A counter that went back has begun anew from 0. */
const since = (before: number, now: number): number => (now >= before ? now - before : now)

/**
 * The meters after a guest's counters were read. The first reading of a microVM counts nothing: whether an earlier
 * one has been counted, nobody knows. Nor does more than a guest with so many vCPUs could have used in the time.
 */
export const afterReading = (
  meters: Meters,
  before: Counters | undefined,
  now: Counters,
  vcpuCount: number
): Meters => {
  if (before?.machineId !== now.machineId) return meters
  const spanMs = Math.max(0, now.at - before.at) + slackMs
  const moved = (from: number, to: number) => Math.min(since(from, to), spanMs * mostBytesPerMs)
  const cpuMs = since(before.cpuBusyTicks, now.cpuBusyTicks) * msPerTick
  return {
    ...meters,
    cpuMs: add(meters.cpuMs, Math.min(cpuMs, spanMs * vcpuCount)),
    rxBytes: add(meters.rxBytes, moved(before.receivedBytes, now.receivedBytes)),
    txBytes: add(meters.txBytes, moved(before.sentBytes, now.sentBytes))
  }
}
