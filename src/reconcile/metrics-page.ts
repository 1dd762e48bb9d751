/** The metrics page, made of the same states as the report, and of what the host and its proxy have counted. */
import { Effect } from "effect"
import { renderFamily } from "../metrics/exposition.ts"
import { families } from "../metrics/families.ts"
import { metricsView } from "../metrics/view.ts"
import type { Page } from "../services/MetricsPage.ts"
import { type HostStatusOptions, hostStatus } from "./host-status.ts"

export const metricsPage = (options: HostStatusOptions): Effect.Effect<Page> =>
  Effect.gen(function* () {
    const { host } = options
    const status = yield* hostStatus(options)
    const view = metricsView({
      status,
      maxApps: host.settings.maxApps,
      memoryAvailableBytes: yield* host.info.memoryAvailableBytes,
      traffic: yield* host.proxy.traffic,
      counts: host.metrics.counts
    })
    // With a pause after each: on a full host the whole page would hold up the requests of the apps.
    return yield* Effect.forEach(families, (family) =>
      Effect.andThen(
        Effect.yieldNow,
        Effect.sync(() => renderFamily(family, view))
      )
    )
  })
