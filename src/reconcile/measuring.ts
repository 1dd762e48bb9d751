/**
 * Asking running guests what they use: each for itself, beside everything else, so that one that is slow delays
 * nothing but its own next reading.
 */
import { Deferred, Effect, Random, Semaphore } from "effect"
import type { HostContext } from "./host-context.ts"
import type { Attachment } from "./model.ts"

/** From the guest's hello to the first reading: the program has started by then. */
const firstMs = 3_000
const everyMs = 60_000
const timeoutMs = 10_000

/**
 * At most four guests are asked at once. Those that did not answer when they were asked last take turns in a lane of
 * their own: however many they are, they keep the others from nothing.
 */
export interface MeasuringLanes {
  readonly answering: Semaphore.Semaphore
  readonly silent: Semaphore.Semaphore
}

export const makeMeasuringLanes = (): MeasuringLanes => ({
  answering: Semaphore.makeUnsafe(3),
  silent: Semaphore.makeUnsafe(1)
})

/** Measures the microVM again and again, as long as this daemon holds it. */
export const measureGuest = (host: HostContext, { machine, instance, session }: Attachment) => {
  const { appId, machineId } = machine.record
  const { measurements, measuringLanes: lanes } = host
  const { volumeId } = instance
  let silent = false

  const readingFailed = Effect.fnUntraced(function* (reason: string) {
    if (!silent) yield* Effect.logWarning(`${appId} is not measured, its last measurement stands: ${reason}`)
    silent = true
  })

  const measure = Effect.gen(function* () {
    const guest = yield* Deferred.await(session)
    const lane = silent ? lanes.silent : lanes.answering
    const usage = yield* lane.withPermits(1)(guest.usage(timeoutMs))
    const reason = measurements.note(
      {
        appId,
        machineId,
        ...instance.config.resources,
        volumeId,
        volumeBytes: host.statuses.get(appId)?.volumes.find((volume) => volume.volumeId === volumeId)
          ?.sizeBytes
      },
      usage,
      yield* Effect.clockWith((clock) => clock.currentTimeMillis)
    )
    if (reason !== undefined) return yield* readingFailed(reason)
    silent = false
  }).pipe(Effect.catchTag("GuestError", ({ message }) => readingFailed(message)))

  return Effect.gen(function* () {
    yield* Deferred.await(session)
    yield* Effect.sleep(firstMs)
    yield* measure
    // Guests that came up together are not asked together for ever.
    yield* Effect.sleep(yield* Random.nextIntBetween(everyMs / 2, everyMs))
    while (true) {
      yield* measure
      yield* Effect.sleep(everyMs)
    }
  }).pipe(Effect.ensuring(Effect.sync(() => measurements.letGo(appId, machineId))))
}
