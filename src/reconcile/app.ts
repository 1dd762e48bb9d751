/**
 * The life of one app: one fiber, one mailbox, one thing at a time.
 *
 * Each round takes one message, notes what it says, and asks the planner for the next step. A step runs beside
 * the mailbox, so that a new document can supersede it; no second step begins before the first has ended and
 * unwound. So there is never a second boot, and nothing acts on what it checked a while ago.
 */
import { Cause, Clock, Effect, Exit, Fiber, Predicate, Queue, Result, Schedule, type Scope } from "effect"
import type { AppId, VolumeId } from "../document/schema.ts"
import type { InstanceState } from "../report/schema.ts"
import type { GuestEvent } from "../services/Guest.ts"
import { type AppRecord, machineOf, type VolumeRecord } from "../services/HostState.ts"
import type { MachineExit } from "../services/Hypervisor.ts"
import { adopt, notTakenUp } from "./adopt.ts"
import { App } from "./app-context.ts"
import { earnedBack, secondsUntil } from "./backoff.ts"
import { Counting, failureReason } from "./counting.ts"
import { type Health, unprobed } from "./health.ts"
import type { HostContext } from "./host-context.ts"
import { describeExit } from "./machine-exit.ts"
import { type AppMessage, type AppModel, type DesiredApp, factsOf, type StepFailure } from "./model.ts"
import { plan, type Step, stillWanted, type VolumeFacts } from "./plan.ts"
import { refusal } from "./refusal.ts"
import { Routing } from "./routing.ts"
import { sleepDue, sleepEnded } from "./sleep-due.ts"
import { appStatus, askOf, isConverged, memoryRetrySeconds } from "./status.ts"
import { runStep } from "./steps.ts"
import { release } from "./stop.ts"
import { portTrouble } from "./troubles.ts"
import { volumeUse } from "./volume-users.ts"
import { NoRoom } from "./wake.ts"

export interface AppOptions {
  readonly host: HostContext
  readonly appId: AppId
  readonly desired: DesiredApp
  /** What an earlier daemon wrote down. */
  readonly record: AppRecord | undefined
  readonly volumes: ReadonlyArray<VolumeRecord>
  readonly mailbox: Queue.Queue<AppMessage>
  /** Asked when nothing of the app is left; true when the fiber may end, false when a message came in between. */
  readonly mayEnd: () => boolean
  /** Run when the app has been looked at for the first time, or is not waited for. Safe to repeat. */
  readonly looked: Effect.Effect<void>
}

/** How long a slot that could not be had is waited for before the next try. */
const slotRetryMs = 10_000
/** What taking up a microVM may take before the host goes on without it. */
const adoptionMs = 10_000
/** The planner asks for the same step again; without a pause it would do so for ever. */
const pauseMs = 1_000
/** The layers of a release that could not be fetched are fetched again after this long; the old one serves on. */
const fetchRetryMs = 30_000
/** A volume that failed is tried again after this long. */
const volumeRetryMs = 30_000

const initialModel = (options: AppOptions): AppModel => ({
  appId: options.appId,
  desired: options.desired,
  record: options.record,
  volumes: new Map<VolumeId, VolumeFacts>(
    options.volumes.map((record) => [record.volumeId, { record, failure: undefined }])
  ),
  ownerOf: (volumeId) => options.host.volumeOwners.get(volumeId),
  volumeTrouble: () => options.host.volumeTrouble,
  portTrouble: () => portTrouble(options.host, options.appId),
  attachment: undefined,
  health: unprobed,
  guestFailure: undefined,
  step: undefined,
  progress: undefined,
  rises: 0,
  slotFailure: undefined,
  wakers: new Set(),
  sleepDue: undefined,
  sleepFailure: undefined,
  waking: undefined,
  wakeFailure: undefined,
  replacement: undefined,
  adoptionFailure: undefined,
  notesFailure: undefined
})

/** What goes on in one app's fiber. */
interface Life {
  readonly options: AppOptions
  readonly app: App
  readonly routing: Routing
  readonly counting: Counting
  /** The step that runs beside the mailbox. */
  running: Fiber.Fiber<void> | undefined
  /** Looks again when time alone may have changed what is to be done. */
  timer: Fiber.Fiber<void> | undefined
}

const begun = (options: AppOptions, scope: Scope.Scope): Life => {
  const { host, mailbox } = options
  const model = initialModel(options)
  const post = (message: AppMessage) => Effect.asVoid(Queue.offer(mailbox, message))
  const life: Life = {
    options,
    app: new App({ host, model, scope, post, publish: Effect.suspend(() => publish(life)) }),
    routing: new Routing(host, model, post),
    counting: new Counting(host.metrics, model),
    running: undefined,
    timer: undefined
  }
  return life
}

export const runApp = Effect.fnUntraced(function* (options: AppOptions) {
  const life = begun(options, yield* Effect.scope)
  const { host, mailbox, record } = options
  const { app, routing } = life
  const { model } = app
  const machine = record === undefined ? undefined : machineOf(record)
  if (record?.instance !== undefined && machine !== undefined) {
    // In the report from the start, should taking it up take long; nothing is counted or routed by it yet.
    const tell = Effect.flatMap(Clock.currentTimeMillis, (now) =>
      host.publish(appStatus(model, now, refusalOf(app)))
    )
    yield* tell
    // The host does not wait for one that gives no answer.
    yield* Effect.forkChild(Effect.delay(options.looked, adoptionMs))
    // As long as nobody knows whether the microVM runs, nothing else may be started in its place.
    yield* adopt(app, machine, record.instance).pipe(
      Effect.tapError((error) =>
        Effect.suspend(() => {
          const sentence = notTakenUp(machine, error)
          if (sentence === model.adoptionFailure) return Effect.void
          model.adoptionFailure = sentence
          return Effect.andThen(Effect.logError(`${model.appId}: ${sentence}`), tell)
        })
      ),
      Effect.retry(Schedule.spaced("5 seconds")),
      Effect.orDie
    )
    model.adoptionFailure = undefined
  }
  yield* host.volumeUsers.register(model.appId, (volumeId) => volumeUse(model, volumeId))
  yield* publish(life)
  yield* options.looked

  while (yield* proceed(life)) {
    yield* publish(life)
    const message = yield* Queue.take(mailbox)
    // A hostname may have gone to another app and come back meanwhile.
    if (message.kind === "desired") routing.renew()
    yield* handle(app, message)
    if (message.kind === "step-ended" && message.step.kind === "wake" && message.failure !== undefined)
      yield* routing.refuse(memoryRetrySeconds, notWoken(message.failure))
  }
  yield* routing.refuse()
  yield* host.withdraw(model.appId)
}, Effect.scoped)

/** False when the fiber is to end. */
const proceed = Effect.fnUntraced(function* (life: Life) {
  const { app, routing, options } = life
  const { host, model } = app
  const facts = factsOf(model, yield* Clock.currentTimeMillis, refusalOf(app))
  if (model.step !== undefined) {
    if (stillWanted(model.step, facts, model.progress?.kind === "short-of-memory")) return true
    yield* supersede(life)
  }
  life.running = undefined
  const next = plan(factsOf(model, yield* Clock.currentTimeMillis, refusalOf(app)))
  if (life.timer !== undefined) yield* Fiber.interrupt(life.timer)
  life.timer = undefined
  if (next.kind === "end") return !options.mayEnd()
  if (next.kind === "wait" && model.attachment === undefined) {
    yield* host.memory.decline(model.appId)
    // Nothing is under way that could bring the app up.
    yield* routing.refuse(next.until === undefined ? undefined : secondsUntil(next.until, facts.now))
  }
  if (next.kind === "step") yield* begin(life, next.step)
  else if (next.until !== undefined) yield* lookAgainAt(life, next.until)
  return true
})

/** Runs the step beside the mailbox; its end arrives as a message. */
const begin = Effect.fnUntraced(function* (life: Life, step: Step) {
  const { app } = life
  const { model } = app
  model.step = step
  model.progress = undefined
  if (step.kind === "start" || step.kind === "wake") model.rises++
  yield* publish(life)
  life.running = yield* runStep(app, step).pipe(
    Effect.exit,
    Effect.flatMap((exit) => app.post({ kind: "step-ended", step, failure: stepFailure(step, exit) })),
    Effect.forkIn(app.scope, { startImmediately: true })
  )
})

/** Interrupts a step that the document no longer asks for and waits until it has unwound. */
const supersede = Effect.fnUntraced(function* ({ app: { model }, running }: Life) {
  if (running !== undefined) yield* Fiber.interrupt(running)
  model.step = undefined
  model.progress = undefined
})

const lookAgainAt = Effect.fnUntraced(function* (life: Life, at: number) {
  const { app } = life
  const delay = Math.max(0, at - (yield* Clock.currentTimeMillis))
  life.timer = yield* Effect.sleep(delay).pipe(
    Effect.andThen(app.post({ kind: "look-again" })),
    Effect.forkIn(app.scope, { startImmediately: true })
  )
})

/** Puts in force, counts and reports what the app is now. */
const publish = Effect.fnUntraced(function* ({ app, routing, counting }: Life) {
  const { host, model } = app
  const at = yield* Clock.currentTimeMillis
  const refused = refusalOf(app)
  const status = appStatus(model, at, refused)
  yield* routing.apply(status.instance, at)
  yield* counting.see(status.instance, refused, at)
  const converged = yield* noteConvergence(app, status.instance?.state)
  yield* host.publish(converged ? appStatus(model, at, refused) : status)
})

/** Why the host cannot serve what the document asks. */
const refusalOf = ({ host, model: { desired } }: App): string | undefined =>
  desired.instance === undefined ? undefined : refusal(desired.instance, desired.volumes, host.limits)

/** For callers: how much memory is missing is theirs to know, other reasons are the operator's. */
const notWoken = ({ shortMib }: StepFailure): string =>
  shortMib === undefined
    ? "This app could not be woken now."
    : `This app sleeps, and the host is ${shortMib} MiB short of the memory to wake it.`

/** Notes what one message says. */
const handle = (app: App, message: AppMessage): Effect.Effect<void> => {
  const { model } = app
  const ours = "machineId" in message && message.machineId === model.attachment?.machine.record.machineId
  switch (message.kind) {
    case "desired":
      model.desired = message.desired
      // Who corrects a release that could not be fetched waits for nothing.
      if (model.replacement?.failure !== undefined) model.replacement = undefined
      return Effect.void
    case "step-ended":
      return stepEnded(app, message.step, message.failure)
    case "exited":
      return ours ? exited(app, message.exit) : Effect.void
    case "guest":
      return ours ? guestSaid(app, message.event) : Effect.void
    case "probed":
      return ours ? probed(app, message.health) : Effect.void
    case "look-again":
      return Effect.void
    case "wake-wanted":
      model.wakers.add(message.answer)
      return Effect.void
    case "sleep-due":
      return sleepDue(app, message)
  }
}

/** Notes that cannot be written are no reason to leave an app alone: the next change writes them again. */
const noted = <E extends { readonly message: string }>(write: Effect.Effect<void, E>): Effect.Effect<void> =>
  Effect.catch(write, (error) => Effect.logError(error.message))

const stepFailure = (
  step: Step,
  exit: Exit.Exit<unknown, { readonly message: string }>
): StepFailure | undefined => {
  if (Exit.isSuccess(exit)) return undefined
  const error: unknown = Cause.squash(exit.cause)
  return {
    kind: failureReason(step, error),
    reason: error instanceof Error ? error.message : String(error),
    tag: Predicate.hasProperty(error, "_tag") ? String(error._tag) : undefined,
    shortMib: error instanceof NoRoom ? error.missingMib : undefined
  }
}

/** Holds the failure against the release, as its restart policy says. @param at ms since 1970 */
const startFailed = (
  app: App,
  { instance: { deploymentId } }: Extract<Step, { kind: "start" | "wake" }>,
  { reason }: StepFailure,
  at: number
) => noted(app.amend((record) => ({ ...record, failure: { reason, at, deploymentId } })))

const stepEnded = Effect.fnUntraced(function* (app: App, step: Step, failure: StepFailure | undefined) {
  const { model } = app
  // A step that was superseded as it ended has nothing more to say.
  if (model.step !== step) return
  model.step = undefined
  model.progress = undefined
  if (step.kind === "claim-slot") model.slotFailure = undefined
  if (step.kind === "sleep") return yield* sleepEnded(app, step, failure, exited)
  if (step.kind === "fetch-layers")
    model.replacement = { deploymentId: step.instance.deploymentId, failure: undefined }
  if (step.kind === "wake") model.wakeFailure = failure?.reason
  if (failure === undefined) return
  yield* Effect.logWarning(`${model.appId}: ${step.kind} failed: ${failure.reason}`)
  if (failure.shortMib === undefined) yield* app.host.metrics.appFailed(model.appId, failure.kind)
  const at = yield* Clock.currentTimeMillis
  switch (step.kind) {
    case "start":
      return yield* startFailed(app, step, failure, at)
    case "provision-volume":
    case "delete-volume": {
      const volumeId = step.kind === "delete-volume" ? step.volumeId : step.volume.volumeId
      const wanted = model.desired.volumes.find((volume) => volume.volumeId === volumeId)
      if (wanted === undefined) return
      const known = model.volumes.get(volumeId)
      model.volumes.set(volumeId, {
        record: known?.record,
        failure: { reason: failure.reason, retryAt: at + volumeRetryMs, wanted }
      })
      return
    }
    case "wake":
      model.waking = undefined
      yield* app.host.metrics.wakeRefused(failure.shortMib === undefined ? "would_not_start" : "no_room")
      // A cold boot that failed counts as any other; what sleeps on is asked for again by who comes next.
      if (model.record?.asleep === undefined) return yield* startFailed(app, step, failure, at)
      return step.patient ? yield* Effect.sleep(pauseMs) : undefined
    case "fetch-layers":
      model.replacement = {
        deploymentId: step.instance.deploymentId,
        failure: { reason: failure.reason, retryAt: at + fetchRetryMs }
      }
      return
    case "claim-slot":
      model.slotFailure = { reason: failure.reason, retryAt: at + slotRetryMs }
      return
    default:
      return yield* Effect.sleep(pauseMs)
  }
})

const exited = Effect.fnUntraced(function* (app: App, exit: MachineExit) {
  const { model } = app
  const { attachment, record } = model
  // A stop or a sleep that is under way sees the end itself.
  const seen = model.step?.kind === "stop" || model.step?.kind === "sleep"
  if (attachment === undefined || record === undefined || seen) return
  const at = yield* Clock.currentTimeMillis
  const reason = model.guestFailure ?? describeExit(exit)
  model.guestFailure = undefined
  yield* Effect.logWarning(`${model.appId}: ${reason}`)
  yield* app.host.metrics.appFailed(model.appId, "exited")
  const released = yield* Effect.result(release(app, attachment))
  if (Result.isFailure(released)) yield* Effect.logError(released.failure.message)
  const earned = earnedBack(attachment.instance.config.restartPolicy, at - (record.startedAt ?? at))
  yield* noted(
    app.amend(({ machine, healthy: __, startedAt: ___, ...before }) => ({
      ...before,
      // What could not be cleared away is still named, and cleared away before anything is started.
      ...(Result.isFailure(released) && machine !== undefined ? { machine } : {}),
      attempts: earned ? 0 : before.attempts,
      ...(exit.kind === "exited" ? { lastExitCode: exit.code } : {}),
      failure: { reason, at, deploymentId: attachment.instance.deploymentId }
    }))
  )
})

const guestSaid = Effect.fnUntraced(function* (app: App, event: GuestEvent) {
  if (event.kind === "started") yield* Effect.logDebug("its program was started")
  if (event.kind === "failed") app.model.guestFailure = event.reason
  if (event.kind !== "restarting") return
  const at = yield* Clock.currentTimeMillis
  const { attempt, budget, total, exit, reason, backoffMs } = event
  yield* noted(
    app.amend((record) => ({
      ...record,
      restartCount: total,
      lastRestart: { at, attempt, budget, exit, reason, backoffMs }
    }))
  )
})

const probed = Effect.fnUntraced(function* (app: App, health: Health) {
  const { model } = app
  const first = health.everHealthy && model.record?.healthy !== true
  model.health = health
  if (first) yield* Effect.logInfo(`${model.appId} is up and healthy`)
  if (first && model.waking !== undefined) {
    const { beganAt, outcome } = model.waking
    const seconds = Number((yield* Clock.currentTimeNanos) - beganAt) / 1e9
    model.waking = undefined
    yield* app.host.metrics.answeredAfterWake(model.appId, outcome, seconds)
  }
  if (first) yield* noted(app.amend((record) => ({ ...record, healthy: true })))
})

/** Writes down when the app first was what its document asks; true when that is now. */
const noteConvergence = Effect.fnUntraced(function* (app: App, state: InstanceState | undefined) {
  const { instance } = app.model.desired
  const { record } = app.model
  if (instance === undefined || record === undefined || state === undefined) return false
  const ask = askOf(instance)
  if (record.converged?.ask === ask || !isConverged(state, instance.desiredState)) return false
  const at = yield* Clock.currentTimeMillis
  yield* noted(app.amend((before) => ({ ...before, converged: { at, ask } })))
  return true
})
