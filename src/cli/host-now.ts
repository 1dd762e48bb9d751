/** The host as it stands, for what is foreseen. */
import { Effect, Option, Result } from "effect"
import { decodeDocument } from "../document/decode.ts"
import type { HostDesiredState } from "../document/schema.ts"
import type { HostNow } from "../foresight/foresee.ts"
import { HostView } from "../services/HostView.ts"

const decoded = (text: string): HostDesiredState | undefined =>
  Option.getOrUndefined(Result.getSuccess(decodeDocument(new TextEncoder().encode(text))))

/** The host as it stands; a host on which no daemon has run is empty. */
export const hostNow = Effect.gen(function* () {
  const view = yield* HostView
  const notes = Option.getOrUndefined(yield* view.notes)
  const inForce = Option.getOrUndefined(Option.flatten(Option.fromNullishOr(notes?.document)))
  const records = notes?.apps ?? []
  const running = yield* Effect.filter(records, ({ machine }) =>
    machine === undefined ? Effect.succeed(false) : view.runs(machine)
  )
  const host: HostNow = {
    now: yield* Effect.clockWith((clock) => clock.currentTimeMillis),
    document: inForce === undefined ? undefined : decoded(inForce.text),
    records,
    volumes: notes?.volumes ?? [],
    up: new Set(running.map(({ appId }) => appId)),
    limits: view.limits,
    maxApps: view.maxApps
  }
  return { host, inForce, isNew: notes === undefined }
})
