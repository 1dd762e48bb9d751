/**
 * Asking running guests what they use, beside everything else: a guest that is slow holds up nothing but its own
 * next reading.
 *
 * A guest has no fiber of its own here: thousands of those, asleep for most of a minute, would take more memory than
 * all else that is kept of an app.
 */
import { Clock, Deferred, Effect, Queue, Random, Schedule, Scope } from "effect"
import type { GuestSession } from "../services/Guest.ts"
import type { HostContext } from "./host-context.ts"
import type { Attachment } from "./model.ts"

/** From the beginning of the watch to the first reading: the program has started by then. */
const firstMs = 3_000
const everyMs = 60_000
const timeoutMs = 10_000
/** How often it is looked whose turn has come. */
const lookEveryMs = 1_000

/**
 * At most four guests are asked at once. Those that did not answer when they were asked last take turns in a lane of
 * their own: however many they are, they keep the others from nothing.
 */
const askedAtOnce = { answering: 3, silent: 1 }

/** When a guest that this daemon holds is asked next, and how it answered last. */
interface Turn {
  readonly attachment: Attachment
  /** ms since 1970. */
  dueAt: number
  /** In a lane, or being asked. */
  waits: boolean
  wasAsked: boolean
  isSilent: boolean
}

export type Turns = Map<Attachment, Turn>

/** Has the microVM measured from now on, as long as this daemon holds it. */
export const measureWhileHeld = Effect.fnUntraced(function* (
  { turns, measurements }: HostContext,
  attachment: Attachment
) {
  const dueAt = (yield* Clock.currentTimeMillis) + firstMs
  const { appId, machineId } = attachment.machine.record
  turns.set(attachment, { attachment, dueAt, waits: false, wasAsked: false, isSilent: false })
  const letGo = Effect.sync(() => {
    turns.delete(attachment)
    measurements.letGo(appId, machineId)
  })
  yield* Scope.addFinalizer(attachment.scope, letGo)
})

/** Measures guest after guest until it is interrupted. */
export const runMeasuring = Effect.fnUntraced(function* ({ turns, measurements, statuses }: HostContext) {
  const answering = yield* Queue.unbounded<Turn>()
  const silent = yield* Queue.unbounded<Turn>()

  const look = Effect.map(Clock.currentTimeMillis, (at) => {
    for (const turn of turns.values()) {
      const { attachment } = turn
      // Who falls asleep is asked when it is found up again.
      if (turn.waits || turn.dueAt > at || attachment.frozen || !Deferred.isDoneUnsafe(attachment.session))
        continue
      turn.waits = true
      Queue.offerUnsafe(turn.isSilent ? silent : answering, turn)
    }
  })

  const volumeBytes = ({ machine, instance }: Attachment) =>
    statuses.get(machine.record.appId)?.volumes.find(({ volumeId }) => volumeId === instance.volumeId)
      ?.sizeBytes

  /** Fails with the reason why the last measurement stands. */
  const ask = Effect.fnUntraced(function* (attachment: Attachment) {
    const { machine, instance, session } = attachment
    const guest: GuestSession = yield* Deferred.await(session)
    const usage = yield* guest.usage(timeoutMs).pipe(Effect.mapError(({ message }) => message))
    // The microVM may have been let go meanwhile.
    if (!turns.has(attachment)) return
    const { appId, machineId } = machine.record
    const { volumeId, config } = instance
    const given = { appId, machineId, ...config.resources, volumeId, volumeBytes: volumeBytes(attachment) }
    const reason = measurements.note(given, usage, yield* Clock.currentTimeMillis)
    if (reason !== undefined) return yield* Effect.fail(reason)
  })

  const measure = Effect.fnUntraced(function* (turn: Turn) {
    const { attachment } = turn
    if (!turns.has(attachment)) return
    if (attachment.frozen) {
      turn.waits = false
      return
    }
    const { appId } = attachment.machine.record
    const complain = (reason: string) =>
      turn.isSilent
        ? Effect.void
        : Effect.logWarning(`${appId} is not measured, its last measurement stands: ${reason}`)
    /** A guest that falls asleep or ends as it is asked is none that does not answer. */
    const isGone = () =>
      attachment.frozen || !turns.has(attachment) || Deferred.isDoneUnsafe(attachment.machine.exit)
    turn.isSilent = yield* ask(attachment).pipe(
      Effect.as(false),
      Effect.catch((reason) =>
        isGone() ? Effect.succeed(turn.isSilent) : Effect.as(complain(reason), true)
      ),
      // A fault of ours in the measuring of one guest is no reason to measure none.
      Effect.catchDefect((defect) => Effect.as(Effect.logError(`${appId} cannot be measured`, defect), true))
    )
    // Guests that came up together are not asked together for ever.
    const wait = turn.wasAsked ? everyMs : yield* Random.nextIntBetween(everyMs / 2, everyMs)
    turn.dueAt = (yield* Clock.currentTimeMillis) + wait
    turn.wasAsked = true
    turn.waits = false
  })

  const lane = (turns: Queue.Dequeue<Turn>, count: number) =>
    Array.from({ length: count }, () => Effect.forever(Effect.flatMap(Queue.take(turns), measure)))

  yield* Effect.all(
    [
      Effect.repeat(look, Schedule.spaced(lookEveryMs)),
      ...lane(answering, askedAtOnce.answering),
      ...lane(silent, askedAtOnce.silent)
    ],
    { concurrency: "unbounded", discard: true }
  )
})
