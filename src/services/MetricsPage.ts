/** The page for Prometheus, where the host serves one. */
import { Context, Effect, Schema, type Scope } from "effect"

/** The pieces of the page, in order: text in Prometheus' format, as UTF-8. */
export type Page = ReadonlyArray<Uint8Array>

export class MetricsPageError extends Schema.TaggedError<MetricsPageError>()("MetricsPageError", {
  reason: Schema.String
}) {
  override get message() {
    return `the metrics page cannot be served ([metrics] listen_address, port): ${this.reason}`
  }
}

/** By default nothing is served, as on a host without `[metrics]`. */
export const MetricsPage = Context.Reference<{
  /** Serves what `page` makes to whoever asks, until the scope closes. Asking changes nothing. */
  readonly offer: (page: Effect.Effect<Page>) => Effect.Effect<void, never, Scope.Scope>
}>("nibrunner/services/MetricsPage", { defaultValue: () => ({ offer: () => Effect.void }) })
