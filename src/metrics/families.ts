/** Every series of the metrics page, in its order. `docs/metrics.md` is made from this list. */
import type { Family } from "./exposition.ts"
import { appFamilies } from "./families/apps.ts"
import { convergenceFamilies } from "./families/convergence.ts"
import { healthFamilies } from "./families/health.ts"
import { hostFamilies } from "./families/host.ts"
import { proxyFamilies } from "./families/proxy.ts"
import { storageFamilies } from "./families/storage.ts"
import type { MetricsView } from "./view.ts"

/** Families that belong together. */
export interface FamilyGroup {
  readonly title: string
  readonly families: ReadonlyArray<Family<MetricsView>>
}

export const familyGroups: ReadonlyArray<FamilyGroup> = [
  { title: "The host", families: hostFamilies },
  { title: "Apps", families: appFamilies },
  { title: "The way to what is asked", families: convergenceFamilies },
  { title: "Health checks", families: healthFamilies },
  { title: "Requests", families: proxyFamilies },
  { title: "Storage", families: storageFamilies }
]

export const families: ReadonlyArray<Family<MetricsView>> = familyGroups.flatMap(({ families }) => families)
