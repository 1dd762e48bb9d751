/** The daemon's own log, for tests that ask what it says. */
import { Logger } from "effect"

/** Gives a layer that puts every line of the log into `lines` and nowhere else. */
export const recordedLog = () => {
  const lines: Array<string> = []
  const layer = Logger.layer([
    Logger.make(({ logLevel, message }) => {
      lines.push(`${logLevel} ${[message].flat().join(" ")}`)
    })
  ])
  return { lines, layer }
}
