/** What an app's states count for on the metrics page: the changes between one and the next. */
import { Effect, Predicate } from "effect"
import type { FailureReason, HostMetrics } from "../metrics/host-metrics.ts"
import type { InstanceState } from "../report/schema.ts"
import type { AppModel } from "./model.ts"
import { outOfRestarts, type Step } from "./plan.ts"
import { askOf, isConverged } from "./status.ts"

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
export const makeCounting = (metrics: HostMetrics, model: AppModel) => {
  // What an earlier daemon has seen is not counted again.
  let before: Seen = { state: undefined, refusal: undefined, neverAnswered: false, spent: isSpent(model) }

  const count = Effect.fnUntraced(function* (last: Seen, next: Seen) {
    const { appId } = model
    if (next.refusal !== undefined && next.refusal !== last.refusal) {
      yield* metrics.appFailed(appId, "refused")
    }
    if (next.neverAnswered && !last.neverAnswered) yield* metrics.appFailed(appId, "never_answered")
    if (next.spent && !last.spent) yield* metrics.appFailed(appId, "out_of_restarts")
    const check = model.attachment?.instance.config.healthCheck
    if (next.state === "unhealthy" && last.state !== "unhealthy" && check !== undefined) {
      yield* metrics.appUnhealthy(appId, check.kind)
    }
  })

  return {
    /** @param now ms since 1970 */
    see: Effect.fnUntraced(function* (
      state: InstanceState | undefined,
      refusal: string | undefined,
      now: number
    ) {
      const { instance } = model.desired
      const last = before
      const up = model.attachment !== undefined
      const failed = state === "failed"
      before = { state, refusal, neverAnswered: failed && up, spent: failed && !up && isSpent(model) }
      if (instance === undefined || state === undefined) return yield* metrics.appForgotten(model.appId)
      const ask = askOf(instance)
      yield* metrics.appSeen(model.appId, {
        at: now,
        ask,
        desiredState: instance.desiredState,
        converged: isConverged(state, instance.desiredState),
        knownConverged: model.record?.converged?.ask === ask,
        unhealthy: state === "unhealthy"
      })
      yield* count(last, before)
    })
  }
}
