/** What the page is made of, ordered for those who make its families. Pure. */
import type { AppId, DesiredInstance } from "../document/schema.ts"
import { type AppStatus, isConverged } from "../reconcile/status.ts"
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
  /** The document names ports of it beside its HTTP port. */
  readonly hasRawPorts: boolean
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

export interface MetricsViews {
  readonly whole: MetricsView
  /** The same, with a part of the apps and of the volumes each; at least one. */
  readonly slices: ReadonlyArray<MetricsView>
}

/** Whether the report tells of what the document asks: of that deployment, and in that state. */
const isAsAsked = (asked: DesiredInstance | undefined, report: InstanceReport): boolean =>
  asked !== undefined &&
  asked.deploymentId === report.deploymentId &&
  isConverged(report.state, asked.desiredState)

const settledVolume = new Set<VolumeReport["state"]>(["ready", "detached", "deleted"])

const appView = (
  { status, counts, traffic }: MetricsSources,
  asked: ReadonlyMap<AppId, DesiredInstance>,
  app: AppStatus
): { readonly app: AppView | undefined; readonly volumes: ReadonlyArray<VolumeView> } => {
  const { appId } = app
  const measured = status.measured(appId)
  const report = appReport(app, measured, status.storagePrefix)
  return {
    app:
      report.instance === undefined
        ? undefined
        : {
            label: labelText({ app: appId }),
            report: report.instance,
            meters: measured === undefined ? undefined : metersReport(measured.meters),
            converged: isAsAsked(asked.get(appId), report.instance),
            attempts: app.instance?.attempts ?? 0,
            counts: counts.apps.get(appId),
            traffic: traffic.apps.get(appId),
            hasRawPorts: (asked.get(appId)?.config.ports ?? []).length > 0
          },
    volumes: report.volumes.map((volume) => ({
      label: labelText({ volume: volume.volumeId, app: appId }),
      report: volume
    }))
  }
}

/** So many apps are looked at in one go. A full host is some ten of them. */
const SLICE = 256

/**
 * What the page is made of, apps by slices. Between two of them the caller may do something else: on a full host all
 * at once takes long enough to be felt by the apps' own callers.
 */
export function* metricsViews(sources: MetricsSources): Generator<undefined, MetricsViews> {
  const { status } = sources
  const asked = new Map<AppId, DesiredInstance>(
    (status.inForce?.document.instances ?? []).map((instance) => [instance.appId, instance])
  )
  const statuses = [...status.apps.values()]
  const slices: Array<Pick<MetricsView, "apps" | "volumes">> = []
  for (let first = 0; first < statuses.length; first += SLICE) {
    const views = statuses.slice(first, first + SLICE).map((app) => appView(sources, asked, app))
    slices.push({
      apps: views.flatMap(({ app }) => app ?? []),
      volumes: views.flatMap(({ volumes }) => volumes)
    })
    yield
  }
  const apps = slices.flatMap((slice) => slice.apps)
  const volumes = slices.flatMap((slice) => slice.volumes)
  const whole: MetricsView = {
    ...sources,
    host: hostReport(status),
    apps,
    volumes,
    slotsUsed: statuses.filter(({ slot }) => slot !== undefined).length,
    converged:
      apps.length === asked.size &&
      apps.every(({ converged }) => converged) &&
      volumes.every(({ report }) => settledVolume.has(report.state))
  }
  return { whole, slices: slices.length === 0 ? [whole] : slices.map((slice) => ({ ...whole, ...slice })) }
}
