/** Probes of the apps' health checks. */
import { counter, type Family, histogram } from "../exposition.ts"
import { bounds, probeOutcomes } from "../host-metrics.ts"
import type { MetricsView } from "../view.ts"
import { appLabel, healthKinds, perApp, putTotals } from "./samples.ts"

export const healthFamilies: ReadonlyArray<Family<MetricsView>> = [
  histogram(
    "nibrunner_health_probe_seconds",
    "How long the probes of health checks took.",
    { result: probeOutcomes },
    bounds.probe,
    ({ counts }) => counts.probes
  ),
  counter(
    "nibrunner_app_health_probes_total",
    "Probes of the app's health check, by what they came to. wrong_status: an answer other than 2xx.",
    { app: appLabel, kind: healthKinds, result: probeOutcomes },
    perApp(({ label, counts }, put) => {
      if (counts !== undefined) putTotals(put, counts.probes, label)
    })
  )
]
