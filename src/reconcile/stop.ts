/** From a microVM that runs to none: in order when the guest answers, by force when it does not. */
import { Deferred, Effect, Option } from "effect"
import type { MachineRecord } from "../services/Hypervisor.ts"
import type { App } from "./app-context.ts"
import { letGo } from "./attachment.ts"
import { unprobed } from "./health.ts"
import type { Attachment } from "./model.ts"
import type { StopReason } from "./plan.ts"

/** What a program gets between SIGTERM and SIGKILL. Source: the document's guest contract. */
const programGraceMs = 10_000
/** What the guest gets on top of that to unmount and power off. */
const guestGraceMs = 5_000
/** How long a guest may take to say that it has understood. */
const answerMs = 5_000

/** Asks the guest to end; true when it has understood. */
const askToShutDown = (attachment: Attachment) =>
  Deferred.await(attachment.session).pipe(
    Effect.flatMap((session) => session.shutdown(programGraceMs)),
    Effect.as(true),
    Effect.timeoutOption(answerMs),
    Effect.map(Option.getOrElse(() => false)),
    Effect.catchTag("GuestError", (error) => Effect.as(Effect.logWarning(error.message), false))
  )

/** Lets go of a microVM that has ended or is to end now, and gives back all that it held. Safe to repeat. */
export const release = Effect.fnUntraced(function* (app: App, attachment: Attachment) {
  const { model } = app
  yield* letGo(attachment)
  model.attachment = undefined
  model.health = unprobed
  yield* end(app, attachment.machine.record)
})

/**
 * Ends a microVM that nobody is attached to, and gives back all that it held. The record keeps naming it until
 * that has succeeded: as long as a VMM may run, nothing is started in its place.
 */
export const end = Effect.fnUntraced(function* (app: App, machine: MachineRecord) {
  const { host, model } = app
  yield* host.hypervisor.kill(machine)
  yield* host.memory.release(model.appId)
  yield* host.network.detach(machine.slot)
})

/** Ends the microVM that the record names, and forgets it. */
export const endStray = Effect.fnUntraced(function* (app: App) {
  const machine = app.model.record?.machine
  if (machine === undefined) return
  yield* end(app, machine)
  yield* app.amend(({ machine: _, startedAt: __, healthy: ___, ...record }) => record)
})

/** The whole stop. The budget is fresh afterwards: whoever stops an app and starts it again owes no wait. */
export const stop = Effect.fnUntraced(function* (app: App, attachment: Attachment, reason: StopReason) {
  yield* Effect.logInfo(`stopping the microVM of ${app.model.appId} (${reason})`)
  const understood = yield* askToShutDown(attachment)
  if (understood) {
    const ended = yield* Deferred.await(attachment.machine.exit).pipe(
      Effect.timeoutOption(programGraceMs + guestGraceMs)
    )
    if (Option.isNone(ended))
      yield* Effect.logWarning(`the guest of ${app.model.appId} did not power off in time`)
  }
  yield* release(app, attachment)
  yield* app.amend(({ machine: _, startedAt: __, healthy: ___, failure: ____, ...record }) => ({
    ...record,
    attempts: 0
  }))
})
