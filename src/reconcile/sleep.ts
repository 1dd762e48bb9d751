/**
 * From a microVM that is up to a snapshot. What comes for the app meanwhile is held, and wakes it as soon as it sleeps.
 *
 * Nothing is written down before: until the snapshot is committed the microVM is the app, and a daemon that dies here
 * leaves one or the other. Whatever goes wrong, the app runs on with its memory, unless its VMM has ended.
 */
import { Cause, Deferred, Effect, Exit, Schema } from "effect"
import { GuestError, type GuestSession } from "../services/Guest.ts"
import type { SnapshotPlace } from "../services/Hypervisor.ts"
import { readArrivals } from "./activity.ts"
import type { App } from "./app-context.ts"
import { letGo } from "./attachment.ts"
import { unprobed } from "./health.ts"
import type { SleepReason } from "./idle.ts"
import type { Attachment } from "./model.ts"

/** How long a frozen guest waits for the daemon before it thaws by itself, of its own time. */
const leaseMs = 30_000
/**
 * How long callers are held for a guest to stand still. PID 1 itself gives up on a program that cannot be frozen after
 * 5 s; as much again is for what it has written to be put on the disk. What takes longer goes on all the same, and the
 * next try finds it done.
 */
const freezeMs = 10_000

/** Something came for the app, so it is not put to sleep. */
export class NotQuiet extends Schema.TaggedError<NotQuiet>()("NotQuiet", { appId: Schema.String }) {
  override get message() {
    return `${this.appId} is not put to sleep: something is open, or has just come for it`
  }
}

/** The guest cannot be made ready. */
export class NotGreeted extends Schema.TaggedError<NotGreeted>()("NotGreeted", { appId: Schema.String }) {
  override get message() {
    return `${this.appId} could not be put to sleep: its guest has not answered this daemon yet`
  }
}

/** Where the app's snapshot lies, or would. */
export const snapshotPlace = ({ host, model }: App, deploymentId: string): SnapshotPlace => ({
  directory: `${host.settings.snapshotDir}/${model.appId}`,
  deploymentId
})

/**
 * Asked once everything that comes is held: whether the app has anything to do. An expired lifetime has given what is
 * open its time; what has come since the last reading counts for the others.
 */
const isQuiet = Effect.fnUntraced(function* ({ host, model }: App, reason: SleepReason) {
  if (reason === "max-lifetime") return true
  const { open, held, arrivals } = (yield* readArrivals(host))(model.appId)
  const known = host.activity.of(model.appId)?.arrivals
  return open - held <= 0 && (reason === "forced" || known === undefined || arrivals === known)
})

/** Has the guest stand still; one that does not answer is given up before its lease is over. */
const freeze = (guest: GuestSession) =>
  guest.freeze(leaseMs).pipe(
    Effect.timeoutOrElse({
      duration: freezeMs,
      orElse: () =>
        Effect.fail(
          new GuestError({ operation: "freeze its program", reason: `it said nothing in ${freezeMs} ms` })
        )
    })
  )

/** Lets the program run on; it is not said to before the guest has taken that, or the VMM has ended. */
const thaw = (attachment: Attachment, guest: GuestSession) =>
  Effect.catch(guest.thaw, (error) => Effect.logError(error.message)).pipe(
    Effect.ensuring(
      Effect.sync(() => {
        attachment.frozen = false
      })
    )
  )

const snapshot = Effect.fnUntraced(function* (app: App, attachment: Attachment) {
  const { model, host } = app
  const { machine, instance, session, scope } = attachment
  if (!Deferred.isDoneUnsafe(session)) return yield* new NotGreeted({ appId: model.appId })
  const guest = yield* Deferred.await(session)
  const place = snapshotPlace(app, instance.deploymentId)
  // What goes past the proxy to an app that sleeps would go to nobody: its next packet is to be a first one.
  yield* host.network.cut(machine.record.slot)
  attachment.frozen = true
  return yield* freeze(guest).pipe(
    Effect.andThen(host.hypervisor.sleep(machine, place)),
    Effect.onExit((exit) => {
      if (Exit.isSuccess(exit) || Deferred.isDoneUnsafe(machine.exit)) return Effect.void
      const told = thaw(attachment, guest)
      // Who waits for the app is let go at once: a guest that was silent may be silent again.
      return Cause.hasInterruptsOnly(exit.cause)
        ? told
        : Effect.forkIn(told, scope, { startImmediately: true })
    })
  )
})

/** The snapshot is the app from now on, whether this can be written down or not: it is found by the machine's name. */
const commit = Effect.fnUntraced(function* (app: App, attachment: Attachment, at: number) {
  const { host, model } = app
  const { process: _, ...machine } = attachment.machine.record
  yield* letGo(attachment)
  model.attachment = undefined
  model.health = unprobed
  yield* host.memory.release(model.appId)
  yield* Effect.catch(
    app.amend(({ machine: __, startedAt: ___, healthy: ____, failure: _____, ...record }) => ({
      ...record,
      attempts: 0,
      asleep: { at, machine }
    })),
    (error) => Effect.logError(error.message)
  )
})

/** The whole sleep. Fails with the error whose message says why the app is up. */
export const sleep = Effect.fnUntraced(function* (app: App, attachment: Attachment, reason: SleepReason) {
  const { host, model } = app
  const failsOften = (host.activity.of(model.appId)?.failures ?? 0) > 0
  yield* host.withSleepPermit(
    failsOften,
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        yield* app.progress({ kind: "falling-asleep" })
        if (!(yield* isQuiet(app, reason))) return yield* new NotQuiet({ appId: model.appId })
        const { takenAt } = yield* host.metrics.snapshotTaken(model.appId, restore(snapshot(app, attachment)))
        yield* commit(app, attachment, takenAt)
        yield* Effect.logInfo(`${model.appId} sleeps (${reason})`)
      })
    )
  )
})
