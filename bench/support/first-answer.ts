/** Polling for an HTTP answer, the same way whoever is polled. */
import { get } from "node:http"
import { Effect } from "effect"
import { Problem } from "../../scripts/local/problem.ts"

export interface Target {
  /** Who is asked, for the sentence of a failure. */
  readonly who: string
  /** 127.0.0.1 where there is none. */
  readonly host?: string
  readonly port: number
  readonly path: string
  readonly hostname: string
}

const EVERY_MS = 20
/** A connection that a user network has accepted before its guest did may never be answered. */
const GIVE_UP_MS = 500

/**
 * The time (`performance.now()`) of the first 200. A new attempt is made every 20 ms whatever became of those
 * before it, so that an attempt that hangs costs nothing.
 */
export const firstAnswer = (target: Target, limitMs: number): Effect.Effect<number, Problem> =>
  Effect.callback<number, Problem>((resume) => {
    const poll = setInterval(() => {
      const { host = "127.0.0.1", port, path, hostname } = target
      const request = get(
        { host, port, path, headers: { host: hostname }, agent: false, timeout: GIVE_UP_MS },
        (response) => {
          response.resume()
          if (response.statusCode !== 200) return
          clearInterval(poll)
          resume(Effect.succeed(performance.now()))
        }
      )
      request.on("timeout", () => request.destroy())
      request.on("error", () => undefined)
    }, EVERY_MS)
    return Effect.sync(() => clearInterval(poll))
  }).pipe(
    Effect.timeoutOrElse({
      duration: limitMs,
      orElse: () => new Problem({ message: `${target.who} did not answer within ${limitMs / 1000} s` })
    })
  )
