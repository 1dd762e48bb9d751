/** What the page is made of, ordered for those who make its families. Pure. */
import type { AppId, DesiredInstance } from "../document/schema.ts"
import { isConverged } from "../reconcile/status.ts"
import type { HostStatus } from "../report/build.ts"
import type { HostReport, InstanceReport, VolumeReport } from "../report/schema.ts"
import type { AppTraffic, ProxyTraffic } from "../services/Proxy.ts"
import { labelText } from "./exposition.ts"
import type { AppCounts, HostCounts } from "./host-metrics.ts"
import type { LabelText } from "./instruments.ts"

export interface MetricsSources {
  /** What `reported.json` says of `status`. */
  readonly report: HostReport
  readonly status: HostStatus
  readonly maxApps: number
  readonly memoryAvailableBytes: number | undefined
  readonly traffic: ProxyTraffic
  readonly counts: HostCounts
}

/** An app whose instance is in the report. */
export interface AppView {
  /** `app="…"`. */
  readonly label: LabelText
  readonly report: InstanceReport
  readonly converged: boolean
  readonly attempts: number
  readonly counts: AppCounts | undefined
  readonly traffic: AppTraffic | undefined
}

export interface VolumeView {
  /** `volume="…",app="…"`. */
  readonly label: LabelText
  readonly report: VolumeReport
}

export interface MetricsView extends MetricsSources {
  readonly apps: ReadonlyArray<AppView>
  readonly volumes: ReadonlyArray<VolumeView>
  readonly slotsUsed: number
  /** Everything is as the document asks. */
  readonly converged: boolean
}

/** Whether the report tells of what the document asks: of that deployment, and in that state. */
const isAsAsked = (asked: DesiredInstance | undefined, report: InstanceReport): boolean =>
  asked !== undefined &&
  asked.deploymentId === report.deploymentId &&
  isConverged(report.state, asked.desiredState)

const settledVolume = new Set<VolumeReport["state"]>(["ready", "detached", "deleted"])

export const metricsView = (sources: MetricsSources): MetricsView => {
  const { report, status, counts, traffic } = sources
  const asked = new Map<AppId, DesiredInstance>(
    (status.inForce?.document.instances ?? []).map((instance) => [instance.appId, instance])
  )
  const apps = report.instances.map((instance): AppView => {
    const { appId } = instance
    return {
      label: labelText({ app: appId }),
      report: instance,
      converged: isAsAsked(asked.get(appId), instance),
      attempts: status.apps.get(appId)?.instance?.attempts ?? 0,
      counts: counts.apps.get(appId),
      traffic: traffic.apps.get(appId)
    }
  })
  let slotsUsed = 0
  for (const { slot } of status.apps.values()) if (slot !== undefined) slotsUsed++
  return {
    ...sources,
    apps,
    volumes: report.volumes.map((volume) => ({
      label: labelText({ volume: volume.volumeId, app: volume.appId }),
      report: volume
    })),
    slotsUsed,
    converged:
      apps.length === asked.size &&
      apps.every(({ converged }) => converged) &&
      report.volumes.every(({ state }) => settledVolume.has(state))
  }
}
