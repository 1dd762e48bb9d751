/** From a microVM that runs to none: in order when the guest answers, by force when it does not. */
import { Deferred, Effect, Option } from "effect"
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
  const { host, model } = app
  yield* letGo(attachment)
  model.attachment = undefined
  model.health = unprobed
  yield* host.hypervisor.kill(attachment.machine.record)
  yield* host.network.detach(attachment.machine.record.slot)
  yield* host.memory.release(model.appId)
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
