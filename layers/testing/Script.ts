/** What a test lays in the way of an in-memory layer: any operation can be made to fail or to stall. */
import { Deferred, Effect, Latch } from "effect"

/** One call that a layer has received, in the order of arrival. `subject` is the id, key or path that it is about. */
export interface Call<Operation> {
  readonly operation: Operation
  readonly subject: string
}

export interface ObstacleOptions {
  /** Only calls about this subject; every call when absent. */
  readonly subject?: string
  /** `before` the operation has had any effect, or `after` it has had all of it. Default `before`. */
  readonly at?: "before" | "after"
  /** How many calls meet the obstacle; all of them, until `clear`, when absent. */
  readonly times?: number
}

/** A place where calls stand still. */
export interface Stall {
  /** Succeeds when the first call has arrived at the stall. */
  readonly reached: Effect.Effect<void>
  /** Lets the waiting calls go on, and every later one. */
  readonly release: Effect.Effect<void>
}

interface Obstacle {
  readonly operation: PropertyKey
  readonly subject: string | undefined
  readonly at: "before" | "after"
  left: number
  readonly meet: (subject: string) => Effect.Effect<void, unknown>
}

/** `Operations` maps the name of each operation to the error that it can fail with. */
export class Script<Operations extends object> {
  readonly #calls: Array<Call<keyof Operations>> = []
  #obstacles: Array<Obstacle> = []

  /** Every call so far, also those that failed or stall. */
  get calls(): ReadonlyArray<Call<keyof Operations>> {
    return this.#calls
  }

  /** How many calls of an operation there were so far. */
  count(operation: keyof Operations, subject?: string): number {
    return this.#calls.filter(
      (call) => call.operation === operation && (subject === undefined || call.subject === subject)
    ).length
  }

  /** Lets the operation fail with this error. */
  fail<Operation extends keyof Operations>(
    operation: Operation,
    error: Operations[Operation] | ((subject: string) => Operations[Operation]),
    options: ObstacleOptions = {}
  ): void {
    const errorOf =
      typeof error === "function" ? (error as (subject: string) => Operations[Operation]) : () => error
    this.#add(operation, options, (subject) => Effect.fail(errorOf(subject)))
  }

  /** Lets the operation stand still until the stall is released or the call is interrupted. */
  stall(operation: keyof Operations, options: ObstacleOptions = {}): Stall {
    const reached = Deferred.makeUnsafe<void>()
    const gate = Latch.makeUnsafe(false)
    this.#add(operation, options, () =>
      Deferred.succeed(reached, undefined).pipe(Effect.andThen(gate.await), Effect.asVoid)
    )
    return { reached: Deferred.await(reached), release: gate.open.pipe(Effect.asVoid) }
  }

  /** Takes every obstacle away; calls that stall already stay where they are. */
  clear(): void {
    this.#obstacles = []
  }

  /** For the layers: records the call and runs the operation between its obstacles. */
  around<Operation extends keyof Operations, A, E, R>(
    operation: Operation,
    subject: string,
    effect: Effect.Effect<A, E, R>
  ): Effect.Effect<A, E | Operations[Operation], R> {
    return Effect.suspend(() => {
      this.#calls.push({ operation, subject })
      return this.#meet(operation, subject, "before").pipe(
        Effect.andThen(effect),
        Effect.tap(() => this.#meet(operation, subject, "after"))
      )
    }) as Effect.Effect<A, E | Operations[Operation], R>
  }

  #add(operation: PropertyKey, options: ObstacleOptions, meet: Obstacle["meet"]): void {
    this.#obstacles.push({
      operation,
      subject: options.subject,
      at: options.at ?? "before",
      left: options.times ?? Number.POSITIVE_INFINITY,
      meet
    })
  }

  #meet(operation: PropertyKey, subject: string, at: "before" | "after"): Effect.Effect<void, unknown> {
    return Effect.suspend(() => {
      const obstacle = this.#obstacles.find(
        (candidate) =>
          candidate.operation === operation &&
          candidate.at === at &&
          candidate.left > 0 &&
          (candidate.subject === undefined || candidate.subject === subject)
      )
      if (obstacle === undefined) return Effect.void
      obstacle.left -= 1
      return obstacle.meet(subject)
    })
  }
}
