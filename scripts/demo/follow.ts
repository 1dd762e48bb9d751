/** Follows an app's log file, record by record. */
import { closeSync, fstatSync, openSync, readSync } from "node:fs"
import { StringDecoder } from "node:string_decoder"
import { Effect } from "effect"
import { attempt } from "../local/problem.ts"

/** One record of the log: time, stream, session and sequence, text. */
const record = /^(\S+) (?:stdout|stderr) \S+ (.*)$/u

/** Hands over the text of each record since `since` (ms since 1970), as they are written. Never ends by itself. */
export const followLog = (path: string, since: number, onText: (text: string) => Effect.Effect<void>) =>
  Effect.gen(function* () {
    const decoder = new StringDecoder("utf8")
    let offset = 0
    let rest = ""
    const more = attempt(`the log ${path} cannot be read`, () => {
      const file = openSync(path, "r")
      try {
        const { size } = fstatSync(file)
        const bytes = Buffer.alloc(Math.max(0, size - offset))
        offset += readSync(file, bytes, 0, bytes.length, offset)
        return decoder.write(bytes)
      } finally {
        closeSync(file)
      }
    })
    for (;;) {
      const lines = `${rest}${yield* more}`.split("\n")
      rest = lines.pop() ?? ""
      for (const text of lines) {
        const [, time = "", said = ""] = record.exec(text) ?? []
        if (Date.parse(time) >= since) yield* onText(said)
      }
      yield* Effect.sleep("200 millis")
    }
  })
