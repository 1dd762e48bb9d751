/** The changes from one state of an app to the next: what they count for on the metrics page, and what the log says of them. */
import { Effect, Predicate } from "effect"
import type { FailureReason, HostMetrics } from "../metrics/host-metrics.ts"
import type { InstanceState } from "../report/schema.ts"
import type { AppModel } from "./model.ts"
import { outOfRestarts, type Step } from "./plan.ts"
import { askOf, type InstanceStatus, isConverged } from "./status.ts"

/** What a start failed on, by the tag of the error that it ended with; whatever is not here is the boot. */
const failedThing: Readonly<Record<string, FailureReason>> = {
  ObjectMissing: "layers",
  DigestMismatch: "layers",
  StoreUnusable: "layers",
  StoreRefused: "layers",
  StoreUnavailable: "layers",
  LayerUnusable: "layers",
  VolumeError: "volume"
}

/** How the failure of a step is counted. */
export const failureReason = (step: Step, error: unknown): FailureReason => {
  switch (step.kind) {
    case "claim-slot":
      return "no_slot"
    case "provision-volume":
    case "delete-volume":
    case "forget-volume":
      return "volume"
    default:
      return (Predicate.hasProperty(error, "_tag") ? failedThing[String(error._tag)] : undefined) ?? "boot"
  }
}

const isSpent = ({ record, desired: { instance } }: AppModel): boolean =>
  record !== undefined && instance !== undefined && outOfRestarts(record, instance)

interface Seen {
  readonly state: InstanceState | undefined
  readonly refusal: string | undefined
  readonly neverAnswered: boolean
  readonly spent: boolean
}

/** Sees one app's states as they are published. */
export class Counting {
  readonly #metrics: HostMetrics
  readonly #model: AppModel
  #before: Seen

  constructor(metrics: HostMetrics, model: AppModel) {
    this.#metrics = metrics
    this.#model = model
    // What an earlier daemon has seen is not counted again.
    this.#before = { state: undefined, refusal: undefined, neverAnswered: false, spent: isSpent(model) }
  }

  /** @param now ms since 1970 */
  see(
    status: Pick<InstanceStatus, "state" | "message"> | undefined,
    refusal: string | undefined,
    now: number
  ): Effect.Effect<void> {
    return Effect.suspend(() => {
      const state = status?.state
      const { appId, desired, attachment, record } = this.#model
      const { instance } = desired
      const last = this.#before
      const up = attachment !== undefined
      const failed = state === "failed"
      const next = {
        state,
        refusal,
        // What is up may be an older release than the one that has failed.
        neverAnswered: failed && attachment?.instance.deploymentId === instance?.deploymentId,
        spent: failed && !up && isSpent(this.#model)
      }
      this.#before = next
      if (instance === undefined || state === undefined) return this.#metrics.appForgotten(appId)
      const ask = askOf(instance)
      const sight = {
        at: now,
        ask,
        desiredState: instance.desiredState,
        converged: isConverged(state, instance.desiredState),
        knownConverged: record?.converged?.ask === ask,
        unhealthy: state === "unhealthy"
      }
      return Effect.andThen(
        this.#metrics.appSeen(appId, sight),
        Effect.andThen(
          count(this.#metrics, this.#model, last, next),
          tell(appId, last, next, status?.message ?? "")
        )
      )
    })
  }
}

/** Says what is so now and was not before; of a start that has failed the step itself has told. */
const tell = (appId: string, last: Seen, next: Seen, message: string): Effect.Effect<void> => {
  if (next.refusal !== undefined && next.refusal !== last.refusal)
    return Effect.logWarning(`${appId} is not run as its document asks: ${next.refusal}`)
  const isSilent = (seen: Seen) => seen.neverAnswered || seen.state === "unhealthy"
  if (isSilent(next) && !isSilent(last)) return Effect.logWarning(`${appId} is not healthy: ${message}`)
  if (next.state === "running" && last.state === "unhealthy")
    return Effect.logInfo(`${appId} is healthy again`)
  return Effect.void
}

/** Counts what is so now and was not before. */
const count = Effect.fnUntraced(function* (
  metrics: HostMetrics,
  { appId, attachment }: AppModel,
  last: Seen,
  next: Seen
) {
  if (next.refusal !== undefined && next.refusal !== last.refusal) {
    yield* metrics.appFailed(appId, "refused")
  }
  if (next.neverAnswered && !last.neverAnswered) yield* metrics.appFailed(appId, "never_answered")
  if (next.spent && !last.spent) yield* metrics.appFailed(appId, "out_of_restarts")
  const check = attachment?.instance.config.healthCheck
  if (next.state === "unhealthy" && last.state !== "unhealthy" && check !== undefined) {
    yield* metrics.appUnhealthy(appId, check.kind)
  }
})
