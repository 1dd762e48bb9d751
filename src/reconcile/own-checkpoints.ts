/**
 * The checkpoints that exports are made from: the daemon's own. One that is left keeps the store from giving back room, so
 * each is deleted however its export ends, and what a daemon that died left is looked for.
 */
import { Effect, Queue, Semaphore } from "effect"
import type { CheckpointId, ExportId } from "../document/schema.ts"
import type { HostMetrics } from "../metrics/host-metrics.ts"
import type { Checkpoints } from "../services/VolumeBackend.ts"

const prefix = "export-"

/** Why a document's checkpoint with such a name is not cut. */
export const OWN_NAME_REFUSED = `a checkpointId that begins with "${prefix}" is an export's own`

/** The name of an export's own checkpoint. */
export const ownName = (exportId: ExportId): string => `${prefix}${exportId}`

/** Whether a document may not use this name, as it is one of the daemon's own. */
export const isOwnName = (name: CheckpointId | string): boolean => name.startsWith(prefix)

/** A checkpoint that cannot be deleted in this time is deleted later. */
const deleteLimitMs = 30_000
const sweepAgainMs = 30_000

export interface OwnCheckpoints {
  /** One export has its checkpoint at a time: another one waits here. */
  readonly turn: <A, E, R>(work: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** Deletes one now, or sees to it that it is deleted as soon as it can be. */
  readonly discard: (name: string) => Effect.Effect<void>
  /** Runs for ever: deletes what is left. */
  readonly sweep: Effect.Effect<never>
}

export const makeOwnCheckpoints = Effect.fnUntraced(function* (
  checkpoints: Checkpoints,
  metrics: HostMetrics
) {
  const turns = Semaphore.makeUnsafe(1)
  const due = yield* Queue.sliding<void>(1)
  yield* Queue.offer(due, undefined)

  const remove = (name: string) => metrics.storage("checkpoint_delete", checkpoints.delete(name))

  /** Within a turn, so none that it finds is in use. */
  const sweepOnce = Effect.gen(function* () {
    const left = (yield* checkpoints.list).filter(({ name }) => isOwnName(name))
    for (const { name } of left) yield* remove(name)
    if (left.length > 0)
      yield* Effect.logWarning(
        `deleted ${left.length} checkpoints of exports that are over: ${left.map(({ name }) => name).join(", ")}`
      )
  }).pipe(turns.withPermits(1))

  return {
    turn: turns.withPermits(1),
    discard: (name) =>
      remove(name).pipe(
        Effect.timeoutOrElse({
          duration: deleteLimitMs,
          orElse: () =>
            Effect.fail({ message: `checkpoint ${name} is not deleted within ${deleteLimitMs} ms` })
        }),
        Effect.catch(({ message }) =>
          Effect.andThen(
            Effect.logWarning(`${message}; it is deleted later`),
            Effect.asVoid(Queue.offer(due, undefined))
          )
        )
      ),
    sweep: Queue.take(due).pipe(
      Effect.andThen(sweepOnce),
      Effect.catch((error) =>
        Effect.logDebug(error.message).pipe(
          Effect.andThen(Effect.sleep(sweepAgainMs)),
          Effect.andThen(Queue.offer(due, undefined))
        )
      ),
      Effect.forever
    )
  } satisfies OwnCheckpoints
})
