/** Work on things that the document names by an id: a fiber for each, and what became of it. */
import { Cause, Effect, FiberMap, Semaphore } from "effect"
import { sameJson } from "../document/difference.ts"

/** Between the death of such a fiber and its next life. */
const rebirthMs = 5_000

export interface NamedWork<Id, Asked, Status> {
  /** What is asked of all things of this kind now. What is asked as before goes on; what is not named any more is asked nothing. */
  readonly tell: (asked: ReadonlyMap<Id, Asked>) => Effect.Effect<void>
  readonly statuses: ReadonlyMap<Id, Status>
}

export interface NamedWorkOptions<Id, Asked, Status> {
  /** Things that the host knows of, named or not. */
  readonly known: Iterable<Id>
  /**
   * Brings one thing to what is asked of it. Interrupted when something else is asked, and begun anew only when it has
   * unwound: two never work on one thing.
   */
  readonly work: (
    id: Id,
    asked: Asked | undefined,
    publish: (status: Status | undefined) => Effect.Effect<void>
  ) => Effect.Effect<void>
  readonly onChange: Effect.Effect<void>
  /** For the log: what such a thing is. */
  readonly noun: string
}

export const makeNamedWork = Effect.fnUntraced(function* <Id extends string, Asked, Status>(
  options: NamedWorkOptions<Id, Asked, Status>
) {
  const fibers = yield* FiberMap.make<Id>()
  const told = new Map<Id, { asked: Asked | undefined; readonly turn: Semaphore.Semaphore }>()
  const statuses = new Map<Id, Status>()
  const unasked = new Set(options.known)

  const publish = (id: Id) => (status: Status | undefined) =>
    Effect.suspend(() => {
      if (sameJson(statuses.get(id), status)) return Effect.void
      if (status === undefined) statuses.delete(id)
      else statuses.set(id, status)
      return options.onChange
    })

  const live = (id: Id, asked: Asked | undefined): Effect.Effect<void> =>
    options
      .work(id, asked, publish(id))
      .pipe(
        Effect.catchCause((cause) =>
          Cause.hasInterruptsOnly(cause)
            ? Effect.interrupt
            : Effect.logFatal(`the fiber of ${options.noun} ${id} died`, cause).pipe(
                Effect.andThen(Effect.sleep(rebirthMs)),
                Effect.andThen(live(id, asked))
              )
        )
      )

  const begin = Effect.fnUntraced(function* (id: Id, asked: Asked | undefined) {
    const entry = told.get(id) ?? { asked, turn: Semaphore.makeUnsafe(1) }
    entry.asked = asked
    told.set(id, entry)
    const turn = live(id, asked).pipe(
      Effect.andThen(
        Effect.sync(() => {
          if (asked === undefined) told.delete(id)
        })
      )
    )
    yield* FiberMap.run(
      fibers,
      id,
      Effect.annotateLogs(entry.turn.withPermits(1)(turn), { [options.noun]: id })
    )
  })

  return {
    statuses,
    tell: Effect.fnUntraced(function* (asked: ReadonlyMap<Id, Asked>) {
      for (const [id, wanted] of asked) {
        const before = told.get(id)
        if (before === undefined || !sameJson(before.asked, wanted)) yield* begin(id, wanted)
      }
      for (const id of [...told.keys(), ...unasked]) {
        const unnamed = !asked.has(id) && (!told.has(id) || told.get(id)?.asked !== undefined)
        if (unnamed) yield* begin(id, undefined)
      }
      unasked.clear()
    })
  } satisfies NamedWork<Id, Asked, Status>
})
