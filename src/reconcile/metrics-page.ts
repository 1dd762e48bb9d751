/** The metrics page, made of the same states as the report, and of what the host and its proxy have counted. */
import { Effect } from "effect"
import { renderPage } from "../metrics/families.ts"
import type { Page } from "../services/MetricsPage.ts"
import { type HostStatusOptions, hostStatus } from "./host-status.ts"

export const metricsPage = (options: HostStatusOptions): Effect.Effect<Page> =>
  Effect.gen(function* () {
    const { host } = options
    const pieces = renderPage({
      status: yield* hostStatus(options),
      maxApps: host.settings.maxApps,
      memoryAvailableBytes: yield* host.info.memoryAvailableBytes,
      traffic: yield* host.proxy.traffic,
      counts: host.metrics.counts
    })
    const encoder = new TextEncoder()
    const page: Array<Uint8Array> = []
    for (const piece of pieces) {
      // At once: as text, a page of a full host is several times as large.
      if (piece !== "") page.push(encoder.encode(piece))
      yield* Effect.yieldNow
    }
    return page
  })
