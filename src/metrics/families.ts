/** Every series of the metrics page, in its order. `docs/metrics.md` is made from this list. */
import { type Family, renderFamily } from "./exposition.ts"
import { appFamilies } from "./families/apps.ts"
import { convergenceFamilies } from "./families/convergence.ts"
import { healthFamilies } from "./families/health.ts"
import { hostFamilies } from "./families/host.ts"
import { proxyFamilies } from "./families/proxy.ts"
import { rawPortFamilies } from "./families/raw-ports.ts"
import { sleepFamilies } from "./families/sleep.ts"
import { storageFamilies } from "./families/storage.ts"
import { type MetricsSources, type MetricsView, metricsViews } from "./view.ts"

/** Families that belong together. */
export interface FamilyGroup {
  readonly title: string
  readonly families: ReadonlyArray<Family<MetricsView>>
}

export const familyGroups: ReadonlyArray<FamilyGroup> = [
  { title: "The host", families: hostFamilies },
  { title: "Apps", families: appFamilies },
  { title: "The way to what is asked", families: convergenceFamilies },
  { title: "Sleep and wake", families: sleepFamilies },
  { title: "Health checks", families: healthFamilies },
  { title: "Requests", families: proxyFamilies },
  { title: "Raw ports, as far as the proxy carries them", families: rawPortFamilies },
  { title: "Storage", families: storageFamilies }
]

export const families: ReadonlyArray<Family<MetricsView>> = familyGroups.flatMap(({ families }) => families)

/**
 * The page in pieces of moderate size, in order, now and then an empty one. Between two of them the caller may do
 * something else.
 */
export function* renderPage(sources: MetricsSources): Generator<string> {
  const views = metricsViews(sources)
  let step = views.next()
  while (step.done !== true) {
    yield ""
    step = views.next()
  }
  const { whole, slices } = step.value
  // What has the label app is about one app or volume at a time.
  for (const family of families) yield* renderFamily(family, "app" in family.labels ? slices : [whole])
}
