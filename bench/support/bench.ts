/** What a bench is: a module `bench/NAME.ts` that exports one of these as `bench`. */
import type { Effect, Scope } from "effect"
import type { ChildProcessSpawner } from "effect/process"
import type { Problem } from "../../scripts/local/problem.ts"

/** A figure of a bench, by the name that it has in the JSON line. */
export interface Measure {
  /** What the figure is, for a reader: `boot, ours ÷ bare QEMU`. */
  readonly what: string
  /** One value for each run, in order. */
  readonly values: ReadonlyArray<number>
  /** What the median must keep: at most or at least this. */
  readonly atMost?: number
  readonly atLeast?: number
}

export interface Bench {
  /** What is run, in one or two sentences. */
  readonly about: string
  /** Runs it; `say` tells how far it is. The scope closes when it has ended: nothing may be left running. */
  readonly run: (
    say: (text: string) => Effect.Effect<void>
  ) => Effect.Effect<
    Readonly<Record<string, Measure>>,
    Problem,
    Scope.Scope | ChildProcessSpawner.ChildProcessSpawner
  >
}

/** The middle value; of an even number the mean of the two in the middle. */
export const median = (values: ReadonlyArray<number>): number => {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length / 2
  const upper = sorted[Math.floor(middle)]
  const lower = sorted[Math.ceil(middle) - 1]
  if (upper === undefined || lower === undefined) throw new RangeError("no value, no median")
  return (upper + lower) / 2
}
