/** One HTTP health probe: `GET path` to the guest. TCP probes are the guest's own (`GuestSession.probe`). */
import { Context, type Effect } from "effect"

/** How a probe ended. */
export type ProbeResult =
  | { readonly kind: "answered"; readonly status: number }
  | { readonly kind: "refused" }
  | { readonly kind: "timed-out"; readonly ms: number }
  | { readonly kind: "failed"; readonly reason: string }

export interface HttpProbe {
  readonly host: string
  readonly port: number
  readonly path: string
  readonly timeoutMs: number
}

export class HealthProber extends Context.Service<
  HealthProber,
  {
    /** A new connection for each probe, bounded as a whole by `timeoutMs`; redirects are not followed. */
    readonly http: (probe: HttpProbe) => Effect.Effect<ProbeResult>
  }
>()("nibrunner/services/HealthProber") {}
