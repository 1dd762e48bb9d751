/** What the app's fiber makes of the word that it is due to sleep, and of a sleep that has ended. */
import { Clock, Deferred, Effect } from "effect"
import type { MachineExit } from "../services/Hypervisor.ts"
import type { App } from "./app-context.ts"
import { verdict } from "./health.ts"
import { type SleepReason, sleepPolicy, sleepReason } from "./idle.ts"
import type { AppMessage, StepFailure } from "./model.ts"
import { dormant, type Step } from "./plan.ts"
import { triedAgain } from "./retry-delay.ts"

/** Why the app is not put to sleep now; undefined when it may be. @param now ms since 1970 */
const obstacle = Effect.fnUntraced(function* ({ model, host }: App, reason: SleepReason, now: number) {
  const { appId, attachment, step } = model
  const { instance } = model.desired
  if (instance?.desiredState !== "on-request") return `${appId} is not on-request: nothing would wake it`
  if (attachment === undefined)
    return dormant(model.record, instance, false) ? `${appId} sleeps already` : `${appId} is not up`
  if (attachment.instance.deploymentId !== instance.deploymentId)
    return `${appId} is about to be replaced by ${instance.deploymentId}`
  if (step !== undefined || model.sleepDue !== undefined) return `${appId} is busy: ${step?.kind ?? "sleep"}`
  const uptimeMs = now - (model.record?.startedAt ?? now)
  if (verdict(model.health, attachment.instance.config.healthCheck, uptimeMs) !== "running")
    return `${appId} is not healthy`
  if (attachment.frozen) return `the guest of ${appId} has not answered yet since its last sleep failed`
  // What it has written could not be brought to its volume, and the machine would wait for that.
  if (host.volumeTrouble !== undefined)
    return `the volume of ${appId} cannot be written: ${host.volumeTrouble}`
  if (yield* attachment.machine.waitsForVolume)
    return `the volume of ${appId} gives errors, and its guest waits until it can be used`
  if (reason === "forced") return undefined
  const activity = host.activity.of(appId)
  const due = activity !== undefined && sleepReason(sleepPolicy(instance), activity, now) === reason
  return due ? undefined : `${appId} is not due to sleep any more`
})

/** Judged anew here, where nothing else of the app goes on: what was due may be so no more. */
export const sleepDue = Effect.fnUntraced(function* (
  app: App,
  { reason, answer }: Extract<AppMessage, { kind: "sleep-due" }>
) {
  const { model, host } = app
  const found = yield* obstacle(app, reason, yield* Clock.currentTimeMillis)
  if (found === undefined) {
    model.sleepDue = { reason, answer }
    return
  }
  const activity = host.activity.of(model.appId)
  if (activity !== undefined && answer === undefined) activity.asked = false
  if (answer !== undefined) yield* Deferred.succeed(answer, found)
})

/**
 * The app sleeps, or is up with a reason.
 *
 * @param exited what is done about a VMM that ended on the way, which nobody has looked at yet
 */
export const sleepEnded = Effect.fnUntraced(function* (
  app: App,
  step: Extract<Step, { kind: "sleep" }>,
  failure: StepFailure | undefined,
  exited: (app: App, exit: MachineExit) => Effect.Effect<void>
) {
  const { model, host } = app
  const { metrics } = host
  const answer = model.sleepDue?.answer
  model.sleepDue = undefined
  if (answer !== undefined) yield* Deferred.succeed(answer, failure?.reason)
  const { attachment } = model
  const activity = host.activity.of(model.appId)
  if (activity !== undefined) activity.asked = false
  if (failure === undefined || attachment === undefined) {
    model.sleepFailure = undefined
    return yield* metrics.slept(model.appId, "slept", step.reason)
  }
  yield* metrics.slept(model.appId, failure.tag === "NotQuiet" ? "refused" : "failed", step.reason)
  if (Deferred.isDoneUnsafe(attachment.machine.exit))
    return yield* exited(app, yield* Deferred.await(attachment.machine.exit))
  if (failure.tag === "NotQuiet") return yield* Effect.logDebug(failure.reason)
  const retryAt = host.activity.failed(model.appId, yield* Clock.currentTimeMillis)
  model.sleepFailure = failure.reason
  yield* Effect.logWarning(`${failure.reason}; ${triedAgain(retryAt)}`)
})
