/** The daemon's own log, for tests that ask what it says. */
import { Deferred, Effect, Logger } from "effect"

/** Gives a layer that puts every line of the log into `lines` and nowhere else. */
export const recordedLog = () => {
  const lines: Array<string> = []
  const waiting = new Set<() => void>()
  const layer = Logger.layer([
    Logger.make(({ logLevel, message }) => {
      lines.push(`${logLevel} ${[message].flat().join(" ")}`)
      for (const look of waiting) look()
    })
  ])
  /** Succeeds when the line is in the log. */
  const until = (line: string): Effect.Effect<void> =>
    Effect.suspend(() => {
      const said = Deferred.makeUnsafe<void>()
      const look = () => {
        if (lines.includes(line)) Deferred.doneUnsafe(said, Effect.void)
      }
      waiting.add(look)
      look()
      return Deferred.await(said).pipe(Effect.ensuring(Effect.sync(() => waiting.delete(look))))
    })
  return { lines, layer, until }
}
