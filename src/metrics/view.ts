/** What the page is made of, ordered for those who make its families. Pure. */
import type { AppId, DesiredInstance } from "../document/schema.ts"
import { isConverged } from "../reconcile/status.ts"
import { appReport, type HostStatus, hostReport, metersReport } from "../report/build.ts"
import type { InstanceMeters, InstanceReport, VolumeReport } from "../report/schema.ts"
import type { AppTraffic, ProxyTraffic } from "../services/Proxy.ts"
import { labelText } from "./exposition.ts"
import type { AppCounts, HostCounts } from "./host-metrics.ts"
import type { LabelText } from "./instruments.ts"

export interface MetricsSources {
  /** What the report would be made of at this moment. */
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
  readonly meters: InstanceMeters | undefined
  /** It is what the document asks. */
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
  /** What the report says of the host. */
  readonly host: ReturnType<typeof hostReport>
  readonly apps: ReadonlyArray<AppView>
  readonly volumes: ReadonlyArray<VolumeView>
  readonly slotsUsed: number
  /** Every app and every volume is as the document asks. */
  readonly converged: boolean
}

/** Whether the report tells of what the document asks: of that deployment, and in that state. */
const isAsAsked = (asked: DesiredInstance | undefined, report: InstanceReport): boolean =>
  asked !== undefined &&
  asked.deploymentId === report.deploymentId &&
  isConverged(report.state, asked.desiredState)

const settledVolume = new Set<VolumeReport["state"]>(["ready", "detached", "deleted"])

export const metricsView = (sources: MetricsSources): MetricsView => {
  const { status, counts, traffic } = sources
  const asked = new Map<AppId, DesiredInstance>(
    (status.inForce?.document.instances ?? []).map((instance) => [instance.appId, instance])
  )
  const apps: Array<AppView> = []
  const volumes: Array<VolumeView> = []
  let slotsUsed = 0
  for (const [appId, app] of status.apps) {
    const measured = status.measured(appId)
    const report = appReport(app, measured, status.storagePrefix)
    if (app.slot !== undefined) slotsUsed++
    for (const volume of report.volumes) {
      volumes.push({ label: labelText({ volume: volume.volumeId, app: appId }), report: volume })
    }
    if (report.instance === undefined) continue
    apps.push({
      label: labelText({ app: appId }),
      report: report.instance,
      meters: measured === undefined ? undefined : metersReport(measured.meters),
      converged: isAsAsked(asked.get(appId), report.instance),
      attempts: app.instance?.attempts ?? 0,
      counts: counts.apps.get(appId),
      traffic: traffic.apps.get(appId)
    })
  }
  return {
    ...sources,
    host: hostReport(status),
    apps,
    volumes,
    slotsUsed,
    converged:
      apps.length === asked.size &&
      apps.every(({ converged }) => converged) &&
      volumes.every(({ report }) => settledVolume.has(report.state))
  }
}
