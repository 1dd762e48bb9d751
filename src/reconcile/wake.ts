/**
 * From a snapshot to the app that it was: whoever waits for it goes on where it was left. Where the snapshot cannot be
 * used the app is booted, which takes longer and is not told to anybody but the operator.
 */
import { Clock, Deferred, Effect, Exit, Option, Result, Schema, Scope } from "effect"
import type { DesiredInstance } from "../document/schema.ts"
import type { GuestSession } from "../services/Guest.ts"
import { type Machine, SnapshotUnusable } from "../services/Hypervisor.ts"
import type { App } from "./app-context.ts"
import { watch } from "./attachment.ts"
import { justWoken } from "./health.ts"
import type { AppModel } from "./model.ts"
import type { Step } from "./plan.ts"
import { snapshotPlace } from "./sleep.ts"
import { detachUnlessUp, giveUp, guestPorts, hello, prepareLayers, run, withMemory } from "./start.ts"

/** No room for the app now: whoever woke it is told to come back. */
export class NoRoom extends Schema.TaggedError<NoRoom>()("NoRoom", {
  appId: Schema.String,
  missingMib: Schema.Int
}) {
  override get message() {
    return `${this.appId} could not be woken: the host is ${this.missingMib} MiB short of the memory that it needs`
  }
}

interface Restored {
  readonly machine: Machine
  readonly scope: Scope.Closeable
  readonly session: GuestSession
}

/** Watches the app from now on. */
const takeUp = Effect.fnUntraced(function* (app: App, was: DesiredInstance, restored: Restored) {
  const { machine, scope, session } = restored
  const startedAt = yield* Clock.currentTimeMillis
  yield* Effect.catch(
    app.amend(({ asleep: _, failure: __, ...record }) => ({
      ...record,
      machine: machine.record,
      startedAt,
      healthy: false
    })),
    // It runs whether this can be written or not; what the notes lack is found again by the machine's name.
    (error) => Effect.logError(error.message)
  )
  const greeted = Deferred.makeUnsafe<GuestSession>()
  yield* Deferred.succeed(greeted, session)
  const health = justWoken(was.config.healthCheck)
  const attachment = yield* watch(
    app.host,
    { machine, instance: was, scope, session: greeted, health, startedAt, listened: true },
    app.post
  )
  yield* app.attach(attachment, health, startedAt)
})

/** Restores the app; fails with the reason why it is to be booted instead, or why it sleeps on. */
const restore = Effect.fnUntraced(function* (app: App, was: DesiredInstance, slot: number) {
  const { host, model } = app
  const { appId } = model
  const place = snapshotPlace(app, was.deploymentId)
  const found = yield* host.hypervisor
    .snapshot(place.directory)
    .pipe(Effect.mapError(({ message }) => new SnapshotUnusable({ appId, kind: "damaged", reason: message })))
  if (Option.isNone(found)) {
    return yield* new SnapshotUnusable({
      appId,
      kind: "missing",
      reason: `there is none in ${place.directory}`
    })
  }
  // Its volume has gone on since: a memory of before would not know it.
  const { takenAt } = found.value
  if (takenAt !== model.record?.asleep?.at) {
    yield* host.hypervisor.discard(place.directory)
    return yield* new SnapshotUnusable({ appId, kind: "foreign", reason: "it is not that of the last sleep" })
  }
  const volume = yield* host.metrics.storage("volume_attach", host.volumes.attach(was.volumeId))
  const link = yield* host.network.attach(slot, guestPorts(was))
  const { version, kernel, initramfs, base } = host.guestImage
  const spec = { ...found.value.spec, image: { version, kernel, initramfs, base }, slot, volume, link }
  const scope = yield* Scope.fork(app.scope)
  return yield* Effect.gen(function* () {
    const machine = yield* host.hypervisor.wake(spec, place).pipe(Scope.provide(scope))
    return yield* Effect.gen(function* () {
      const session = yield* hello(app, machine).pipe(Scope.provide(scope))
      // The kernel of a frozen guest takes connections already, so the first probe waits for its answer inside.
      yield* Effect.all([session.thaw, takeUp(app, was, { machine, scope, session })], {
        concurrency: "unbounded",
        discard: true
      })
    }).pipe(Effect.onExit((exit) => (Exit.isSuccess(exit) ? Effect.void : giveUp(app, machine, scope))))
  }).pipe(Effect.onExit((exit) => (Exit.isSuccess(exit) ? Effect.void : Scope.close(scope, exit))))
})

/** What was asleep is no more, if anything was: the app boots. */
const bootInstead = Effect.fnUntraced(function* (app: App, instance: DesiredInstance, slot: number) {
  const { host, model } = app
  const { directory } = snapshotPlace(app, instance.deploymentId)
  yield* app.amend(({ asleep: _, machine: __, ...record }) => record)
  yield* host.hypervisor.discard(directory)
  yield* Effect.logInfo(`${model.appId} is booted: it has no snapshot that can be woken`)
  if (model.waking !== undefined) model.waking.outcome = "cold_boot"
  yield* host.metrics.woken(model.appId, "cold_boot")
  yield* run(app, instance, slot)
})

/** One that sleeps with a snapshot wakes as what it was; one without is booted as the document has it now. */
const wakesAs = ({ record }: AppModel, instance: DesiredInstance): DesiredInstance =>
  record?.asleep?.machine === undefined ? instance : (record.instance ?? instance)

const wakeUp = Effect.fnUntraced(function* (app: App, { instance, slot }: Extract<Step, { kind: "wake" }>) {
  const { host, model } = app
  const was = wakesAs(model, instance)
  if (model.record?.asleep?.machine === undefined) {
    return yield* bootInstead(app, was, slot)
  }
  const restored = yield* host
    .withStartPermit(
      app.progress({ kind: "booting" }).pipe(Effect.andThen(host.metrics.restored(restore(app, was, slot)))),
      (limit) => app.progress({ kind: "start-capacity-in-use", limit })
    )
    .pipe(
      // A VMM that ended before it had anything of the snapshot: whoever waits need not hear of it.
      Effect.retry({ times: 1, while: (error) => error._tag === "WakeFailed" && error.kept }),
      Effect.result
    )
  if (Result.isSuccess(restored)) return yield* host.metrics.woken(model.appId, "restored")
  const { failure } = restored
  switch (failure._tag) {
    case "SnapshotUnusable":
      yield* host.metrics.snapshotDiscarded(failure.kind)
      break
    case "WakeFailed":
      if (failure.kept) {
        // A layer may have been taken from under it: the next wake finds it again.
        yield* Effect.catch(prepareLayers(app, was), (error) => Effect.logWarning(error.message))
        return yield* failure
      }
      yield* host.metrics.snapshotDiscarded("not_restored")
      break
    case "GuestError":
    case "BootFailed":
      yield* host.metrics.snapshotDiscarded("not_restored")
      break
    default:
      return yield* failure
  }
  yield* Effect.logWarning(failure.message)
  return yield* bootInstead(app, was, slot)
})

/** The whole wake. Fails with the error whose message says why the app is not up. */
export const wake = Effect.fnUntraced(function* (app: App, step: Extract<Step, { kind: "wake" }>) {
  const { host, model } = app
  model.waking = { beganAt: yield* Clock.currentTimeNanos, outcome: "restored" }
  const { memoryMib } = wakesAs(model, step.instance).config.resources
  const up = detachUnlessUp(app, step.slot, wakeUp(app, step))
  if (step.patient) return yield* withMemory(app, memoryMib, up)
  const missingMib = yield* host.memory.tryAcquire(model.appId, memoryMib)
  if (missingMib > 0) {
    yield* host.metrics.startRefused("no_room")
    return yield* new NoRoom({ appId: model.appId, missingMib })
  }
  return yield* Effect.onExit(up, (exit) =>
    Exit.isSuccess(exit) ? Effect.void : host.memory.release(model.appId)
  )
})
