/** From the states of everything on the host to `reported.json`. Pure. */

import { httpPortOfSlot } from "../config/ports.ts"
import type { AppId, CheckpointId, ExportId, HostDesiredState, HostId } from "../document/schema.ts"
import { slotAddresses } from "../network/addresses.ts"
import type { CheckpointStatus } from "../reconcile/checkpoints.ts"
import type { ExportStatus } from "../reconcile/exports.ts"
import type { AppMeasurements, Compute, VolumeUsage } from "../reconcile/measurements.ts"
import type { AppStatus, InstanceStatus, VolumeStatus } from "../reconcile/status.ts"
import {
  type CheckpointReport,
  type ExportReport,
  type HostReport,
  type InstanceCompute,
  type InstanceMeters,
  type InstanceReport,
  MAX_MESSAGE,
  type VolumeUsage as ReportedUsage,
  type VolumeReport
} from "./schema.ts"

export interface HostStatus {
  /** ms since 1970. */
  readonly now: number
  readonly ready: boolean
  readonly inForce: { readonly document: HostDesiredState; readonly digest: string } | undefined
  /** What is wrong with the host as a whole, or with its document's file; a sentence each. */
  readonly troubles: ReadonlyArray<string>
  readonly vcpuCount: number
  readonly memoryMib: number
  readonly heldMemoryMib: number
  readonly disk: { readonly totalBytes: number; readonly availableBytes: number }
  readonly versions: HostReport["versions"]
  readonly storagePrefix: string
  readonly apps: ReadonlyMap<AppId, AppStatus>
  readonly checkpoints: ReadonlyMap<CheckpointId, CheckpointStatus>
  readonly exports: ReadonlyMap<ExportId, ExportStatus>
  /** What is known of what an app uses; undefined for one that the document does not name. */
  readonly measured: (appId: AppId) => AppMeasurements | undefined
}

/** What a host is called before the first document has named it. */
const unnamedHost = "host-local" as HostId

/** Cuts a sentence to what a report may carry, at a whole character. */
export const clip = (message: string): string => {
  const points = Array.from(message)
  return points.length <= MAX_MESSAGE ? message : `${points.slice(0, MAX_MESSAGE - 1).join("")}…`
}

const time = (ms: number): string => new Date(ms).toISOString()

/** The entry under its name when there is a value, nothing when there is none. */
const known = <const Key extends string, A>(key: Key, value: A | undefined): { readonly [K in Key]?: A } =>
  value === undefined ? {} : ({ [key]: value } as { readonly [K in Key]: A })

const computeReport = (compute: Compute): InstanceCompute => ({
  memoryTotalBytes: compute.memoryTotalBytes,
  memoryUsedBytes: compute.memoryUsedBytes,
  ...known("cpuShare", compute.cpuShare === undefined ? undefined : Number(compute.cpuShare.toFixed(4))),
  measuredAt: time(compute.measuredAt)
})

export const metersReport = (meters: AppMeasurements["meters"]): InstanceMeters => ({
  runningMs: Math.floor(meters.runningMs),
  idleMs: Math.floor(meters.idleMs),
  cpuMs: Math.floor(meters.cpuMs),
  rxBytes: Math.floor(meters.rxBytes),
  txBytes: Math.floor(meters.txBytes),
  diskProvisionedMibSeconds: Math.floor(meters.diskProvisionedMibSeconds),
  diskUsedMibSeconds: Math.floor(meters.diskUsedMibSeconds)
})

const usageReport = ({ totalBytes, usedBytes, measuredAt }: VolumeUsage): ReportedUsage => ({
  totalBytes,
  usedBytes,
  measuredAt: time(measuredAt)
})

const instanceReport = (
  appId: AppId,
  status: InstanceStatus,
  measured: AppMeasurements | undefined
): InstanceReport => ({
  appId,
  deploymentId: status.deploymentId,
  state: status.state,
  restartCount: status.restartCount,
  ...known("hostPort", status.slot === undefined ? undefined : httpPortOfSlot(status.slot)),
  ...known("guestIpv4", status.slot === undefined ? undefined : slotAddresses(status.slot).guest),
  ...known("layerDigests", status.layerDigests.length === 0 ? undefined : status.layerDigests),
  ...known(
    "lastRestart",
    status.lastRestart === undefined
      ? undefined
      : { ...status.lastRestart, at: time(status.lastRestart.at), reason: clip(status.lastRestart.reason) }
  ),
  ...known("startedAt", status.startedAt === undefined ? undefined : time(status.startedAt)),
  ...known("convergedAt", status.convergedAt === undefined ? undefined : time(status.convergedAt)),
  ...known("lastHealthyAt", status.lastHealthyAt === undefined ? undefined : time(status.lastHealthyAt)),
  ...known("lastExitCode", status.lastExitCode),
  ...known("compute", measured?.compute === undefined ? undefined : computeReport(measured.compute)),
  ...known("message", status.message === undefined ? undefined : clip(status.message))
})

const volumeReport = (
  status: VolumeStatus,
  storagePrefix: string,
  usage: VolumeUsage | undefined
): VolumeReport => ({
  volumeId: status.volumeId,
  appId: status.appId,
  state: status.state,
  sizeBytes: status.sizeBytes,
  storagePrefix,
  ...known("usage", usage === undefined || !status.exists ? undefined : usageReport(usage)),
  ...known("message", status.message === undefined ? undefined : clip(status.message))
})

const checkpointReport = (status: CheckpointStatus): CheckpointReport => ({
  checkpointId: status.checkpointId,
  volumeId: status.volumeId,
  state: status.state,
  ...known("reference", status.reference),
  ...known("readyAt", status.readyAt === undefined ? undefined : time(status.readyAt)),
  ...known("message", status.message === undefined ? undefined : clip(status.message))
})

const exportReport = (status: ExportStatus): ExportReport => ({
  exportId: status.exportId,
  state: status.state,
  ...known("sizeBytes", status.sizeBytes),
  ...known("readyAt", status.readyAt === undefined ? undefined : time(status.readyAt)),
  ...known("message", status.message === undefined ? undefined : clip(status.message))
})

/** What is known of what the document names, in its order. */
const inOrder = <A, Status>(
  named: ReadonlyArray<A> | undefined,
  statusOf: (one: A) => Status | undefined
): ReadonlyArray<Status> =>
  (named ?? []).flatMap((one) => {
    const status = statusOf(one)
    return status === undefined ? [] : [status]
  })

/** What the report says of one app, but for its meters. */
export interface AppReport {
  readonly volumes: ReadonlyArray<VolumeReport>
  readonly instance: InstanceReport | undefined
}

export const appReport = (
  { appId, instance, volumes }: AppStatus,
  measured: AppMeasurements | undefined,
  storagePrefix: string
): AppReport => ({
  volumes: volumes.map((volume) =>
    volumeReport(
      volume,
      storagePrefix,
      measured?.volumes.find(({ volumeId }) => volumeId === volume.volumeId)
    )
  ),
  instance: instance === undefined ? undefined : instanceReport(appId, instance, measured)
})

/** The report without what it says of apps. */
export const hostReport = (host: HostStatus): Omit<HostReport, "volumes" | "instances"> => {
  const document = host.inForce?.document
  let vcpus = 0
  for (const { instance } of host.apps.values()) vcpus += instance?.vcpuCount ?? 0
  return {
    hostId: document?.hostId ?? unnamedHost,
    reportedAt: time(host.now),
    state: host.ready ? "ready" : "registering",
    capacity: { vcpuCount: host.vcpuCount, memoryMib: host.memoryMib, cacheBytes: host.disk.totalBytes },
    allocatable: {
      vcpuCount: Math.max(0, host.vcpuCount - vcpus),
      memoryMib: Math.max(0, host.memoryMib - host.heldMemoryMib),
      cacheBytes: Math.min(host.disk.totalBytes, host.disk.availableBytes)
    },
    versions: host.versions,
    checkpoints: inOrder(document?.checkpoints, ({ checkpointId }) => host.checkpoints.get(checkpointId)).map(
      checkpointReport
    ),
    exports: inOrder(document?.exports, ({ exportId }) => host.exports.get(exportId)).map(exportReport),
    ...known("acceptedDigest", host.inForce?.digest),
    ...known("acceptedRevision", document?.revision),
    message: host.troubles.length === 0 ? null : clip(host.troubles.join("; "))
  }
}

export const buildReport = (host: HostStatus): HostReport => {
  const apps = Array.from(host.apps.values(), (status) => {
    const measured = host.measured(status.appId)
    const { volumes, instance } = appReport(status, measured, host.storagePrefix)
    const meters = known("meters", measured === undefined ? undefined : metersReport(measured.meters))
    return { volumes, instances: instance === undefined ? [] : [{ ...instance, ...meters }] }
  })
  return {
    ...hostReport(host),
    volumes: apps.flatMap(({ volumes }) => volumes),
    instances: apps.flatMap(({ instances }) => instances)
  }
}
