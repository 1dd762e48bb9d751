/** How long apps take to become what their document asks, and which are not. */
import { DesiredInstance } from "../../document/schema.ts"
import { causes, outcomes, phases } from "../convergence.ts"
import { counter, type Family, gauge, histogram } from "../exposition.ts"
import { bounds } from "../host-metrics.ts"
import type { MetricsView } from "../view.ts"
import { appLabel, perApp, putTotals, seconds, valueOf } from "./samples.ts"

const desiredStates = DesiredInstance.fields.desiredState.literals

export const convergenceFamilies: ReadonlyArray<Family<MetricsView>> = [
  gauge(
    "nibrunner_app_converged",
    "1 while the app is what the document asks.",
    { app: appLabel },
    valueOf(({ converged }) => (converged ? 1 : 0))
  ),
  gauge(
    "nibrunner_app_converging_seconds",
    "For how long the app has been on its way to what the document asks; 0 when it is not on its way.",
    { app: appLabel },
    ({ apps, status }, put) => {
      for (const { label, counts } of apps) {
        const since = counts?.convergence.since
        put(label, since === undefined ? 0 : seconds(Math.max(0, status.now - since)))
      }
    }
  ),
  gauge(
    "nibrunner_app_last_converge_seconds",
    "How long the app's last way took, by phase. Absent before the first and while one is under way.",
    { app: appLabel, phase: phases },
    perApp(({ label, counts }, put) => {
      for (const [phase, duration] of counts?.convergence.last ?? [])
        put(`${label},phase="${phase}"`, duration)
    })
  ),
  histogram(
    "nibrunner_converge_seconds",
    "How long apps took to become what the document asks, after a change of it (change) or after they had been so and were not any more (restart), by phase; attempts that failed on the way are in it.",
    { phase: phases, desired_state: desiredStates, cause: causes },
    bounds.converge,
    ({ counts }) => counts.converge
  ),
  counter(
    "nibrunner_converge_outcomes_total",
    "Ways of apps to what the document asks, by how they ended; superseded: the document asked for something else first.",
    { desired_state: desiredStates, cause: causes, outcome: outcomes },
    ({ counts }, put) => putTotals(put, counts.convergeOutcomes)
  )
]
