/** wrk, which makes the load. */
import { Effect } from "effect"
import { Problem, tool } from "../../scripts/local/problem.ts"

/** Requests a second that the server answers, over so many connections that are kept open. Any error is a failure. */
export const requestsPerSecond = (port: number, connections: number, seconds: number) =>
  Effect.gen(function* () {
    const lines: Array<string> = []
    const url = `http://127.0.0.1:${port}/`
    yield* tool("wrk", ["-t1", `-c${connections}`, `-d${seconds}s`, url], (line) =>
      Effect.sync(() => void lines.push(line))
    )
    const wrong = lines.find((line) => /Non-2xx|Socket errors/u.test(line))
    if (wrong !== undefined)
      return yield* new Problem({ message: `${url} did not answer well: ${wrong.trim()}` })
    const rate = Number(/^Requests\/sec:\s+([\d.]+)$/mu.exec(lines.join("\n"))?.[1])
    return Number.isFinite(rate) && rate > 0
      ? rate
      : yield* new Problem({ message: `wrk did not say how many requests ${url} answered` })
  })
