/** What `install` and `start` tell. */
import { Console, Effect } from "effect"
import { printable } from "../../src/cli/printable.ts"

/** Says something on stdout, on as many lines as it has. */
export const note = (text: string): Effect.Effect<void> =>
  Console.log(text.split("\n").map(printable).join("\n"))

/** Counts the changes, and says each as it is made. */
export interface Changes {
  readonly made: (text: string) => Effect.Effect<void>
  readonly count: () => number
}

export const makeChanges = (): Changes => {
  let count = 0
  return {
    made: (text) =>
      Effect.suspend(() => {
        count += 1
        return note(text)
      }),
    count: () => count
  }
}
