/** wrk and h2load, which make the load. Whatever is not answered well is a failure. */
import { writeFileSync } from "node:fs"
import { Effect } from "effect"
import { Problem, tool } from "../../scripts/local/problem.ts"

export interface Load {
  readonly url: string
  readonly connections: number
  readonly seconds: number
  /** Sends a body of so many bytes with each request. Needs `script`, a file that is written for it. */
  readonly upload?: { readonly bytes: number; readonly script: string }
}

export interface Rates {
  readonly requestsPerSecond: number
  /** What 99 of 100 requests took at most, in ms. */
  readonly p99: number
}

const MS: Readonly<Record<string, number>> = { us: 0.001, ms: 1, s: 1000, m: 60_000 }

/** The load as wrk reports it. */
export const wrk = ({ url, connections, seconds, upload }: Load) =>
  Effect.gen(function* () {
    if (upload !== undefined) {
      writeFileSync(
        upload.script,
        `wrk.method = "PUT"\nwrk.body = string.rep("x", ${upload.bytes})\nwrk.headers["Content-Type"] = "text/plain"\n`
      )
    }
    const args = ["-t1", `-c${connections}`, `-d${seconds}s`, "--latency", "--timeout", "30s"]
    const output = yield* lines("wrk", [...args, ...(upload === undefined ? [] : ["-s", upload.script]), url])
    const wrong = /Non-2xx.*|Socket errors.*/u.exec(output)
    if (wrong !== null) return yield* new Problem({ message: `${url} did not answer well: ${wrong[0]}` })
    const requestsPerSecond = Number(/^Requests\/sec:\s+([\d.]+)$/mu.exec(output)?.[1])
    const latency = /^\s*99%\s+([\d.]+)(us|ms|s|m)\s*$/mu.exec(output)
    const p99 = Number(latency?.[1]) * (MS[latency?.[2] ?? ""] ?? Number.NaN)
    return requestsPerSecond > 0 && p99 > 0
      ? ({ requestsPerSecond, p99 } satisfies Rates)
      : yield* new Problem({ message: `wrk did not say how well ${url} answered:\n${output}` })
  })

/** Requests a second over HTTP/2, so many at a time on each connection. */
export const h2load = (url: string, connections: number, streams: number, seconds: number) =>
  Effect.gen(function* () {
    const output = yield* lines("h2load", [
      `-c${connections}`,
      `-m${streams}`,
      `-D${seconds}`,
      "--warm-up-time=1",
      url
    ])
    const failed = /(\d+) failed, (\d+) errored, (\d+) timeout/u.exec(output)
    const rate = Number(/finished in [\d.]+\w+, ([\d.]+) req\/s/u.exec(output)?.[1])
    if (failed === null || failed.slice(1).some((count) => count !== "0") || !(rate > 0)) {
      return yield* new Problem({ message: `${url} did not answer well over HTTP/2:\n${output}` })
    }
    return rate
  })

const lines = (command: string, args: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const seen: Array<string> = []
    yield* tool(command, args, (line) => Effect.sync(() => void seen.push(line)))
    return seen.join("\n")
  })
