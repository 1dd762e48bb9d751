/** Taking up a microVM that an earlier daemon has started. */
import { Clock, Deferred, Effect, Exit, Option, Schedule, Scope } from "effect"
import type { DesiredInstance } from "../document/schema.ts"
import type { GuestSession } from "../services/Guest.ts"
import type { Machine, MachineRecord, SnapshotRecord } from "../services/Hypervisor.ts"
import type { App } from "./app-context.ts"
import { untilStarted, watch } from "./attachment.ts"
import { bootSpec } from "./boot-spec.ts"
import { knownHealthy, unprobed } from "./health.ts"
import { snapshotPlace } from "./sleep.ts"
import { guestPorts } from "./start.ts"

/** Between two attempts to greet a guest that runs but does not answer. */
const again = Schedule.spaced("5 seconds")

/** Greets the guest, and hands the boot spec over if the earlier daemon died before it could. */
const greet = Effect.fnUntraced(function* (
  app: App,
  machine: Machine,
  instance: DesiredInstance,
  startedAt: number
) {
  const { host } = app
  const session = yield* host.guest.connect(machine, host.settings.guestHelloTimeoutMs)
  if (session.phase === "awaiting-spec") {
    const link = yield* host.network.attach(machine.record.slot, guestPorts(instance))
    yield* session.handOver(bootSpec(instance, link, startedAt))
  }
  // The earlier daemon died as it put the app to sleep, or as it woke it.
  if (session.phase === "frozen") yield* session.thaw
  // Or as it exported its volume. A guest whose image is too old for that has none to thaw.
  yield* Effect.catch(session.thawVolume, (error) => Effect.logDebug(error.message))
  return session
})

/** The record of a microVM that ended while no daemon was there: it was put to sleep, or it is gone. */
const noteAbsence = Effect.fnUntraced(function* (
  app: App,
  machine: MachineRecord,
  instance: DesiredInstance
) {
  const { host, model } = app
  // It was waking, and has not run: it sleeps still.
  if (model.record?.machine === undefined) return
  const { directory } = snapshotPlace(app, instance.deploymentId)
  const snapshot = yield* Effect.catch(host.hypervisor.snapshot(directory), (error) =>
    Effect.as(Effect.logWarning(error.message), Option.none<SnapshotRecord>())
  )
  const { process: _, ...named } = machine
  const asleep =
    Option.isSome(snapshot) && snapshot.value.spec.machineId === machine.machineId
      ? { asleep: { at: snapshot.value.takenAt, machine: named } }
      : {}
  yield* app.amend(({ machine: __, startedAt: ___, healthy: ____, ...record }) => ({
    ...record,
    ...asleep,
    // Nobody saw it end: it is not held against the app.
    attempts: 0
  }))
})

/** The sentence for a microVM that runs, as far as anybody knows, and of which this daemon has no hold. */
export const notTakenUp = (machine: MachineRecord, { message }: { readonly message: string }): string => {
  const pid = machine.process?.pid
  const ended = pid === undefined ? "" : `; once its process has ended (kill ${pid}) the app is booted anew`
  return `its microVM cannot be taken up, which is tried every 5 s: ${message}${ended}`
}

/** Attaches to the microVM of the app's record; false when it has ended. */
export const adopt = Effect.fnUntraced(function* (
  app: App,
  record: MachineRecord,
  instance: DesiredInstance
) {
  const { host, model } = app
  const scope = yield* Scope.fork(app.scope)
  const found = yield* host.hypervisor.adopt(record).pipe(
    Scope.provide(scope),
    // A VMM is spoken with by one at a time: who fails lets go before the next try.
    Effect.onExit((exit) => (Exit.isSuccess(exit) ? Effect.void : Scope.close(scope, exit)))
  )
  if (Option.isNone(found)) {
    yield* Scope.close(scope, Exit.void)
    yield* host.hypervisor.kill(record)
    yield* noteAbsence(app, record, instance)
    return false
  }
  const machine = found.value
  yield* host.memory.hold(model.appId, instance.config.resources.memoryMib)
  yield* Effect.logInfo(`took up the microVM of ${model.appId}, process ${machine.record.process?.pid}`)
  // Its daemon died before the boot spec was handed over: nothing of the app runs in it yet.
  const isEmpty = model.record?.startedAt === undefined
  const now = yield* Clock.currentTimeMillis
  // A clock that was set back must not make a microVM younger than new.
  const startedAt = Math.min(model.record?.startedAt ?? now, now)
  // It runs whether this can be written or not; what the notes lack is found again by the machine's id.
  yield* Effect.catch(
    app.amend(({ asleep: _, ...before }) => ({ ...before, machine: machine.record, startedAt })),
    (error) => Effect.logError(error.message)
  )
  const session = Deferred.makeUnsafe<GuestSession>()
  const health = model.record?.healthy === true ? knownHealthy : unprobed
  const attachment = yield* watch(host, { machine, instance, scope, session, health, startedAt }, app.post)
  yield* app.attach(attachment, health, startedAt)
  const hangs = Effect.fnUntraced(function* ({ message }: { readonly message: string }) {
    if (Deferred.isDoneUnsafe(machine.exit)) return
    const reason = `${message}; it was on its way up when the daemon before this one ended`
    yield* app.post({ kind: "guest", machineId: record.machineId, event: { kind: "failed", reason } })
    yield* host.hypervisor.kill(machine.record)
  })
  // The app answers meanwhile: what its guest has to say can wait until it is greeted.
  yield* greet(app, machine, instance, startedAt).pipe(
    Scope.provide(scope),
    Effect.tapError((error) =>
      Effect.logWarning(`the guest of ${model.appId} is not greeted yet: ${error.message}`)
    ),
    Effect.retry({ schedule: again, while: () => !isEmpty }),
    Effect.tap((greeted) => Deferred.succeed(session, greeted)),
    Effect.flatMap(({ phase }) =>
      phase === "awaiting-spec" || phase === "starting" ? untilStarted(host, attachment) : Effect.void
    ),
    Effect.catch(hangs),
    Effect.catch((error) => Effect.logError(error.message)),
    Effect.forkIn(scope)
  )
  return true
})
