/**
 * Requests a second through our proxy, against nginx in front of the same app. Each is one process whose data path is
 * one thread; the app is a third process. They are measured one after the other, in turns, so that whatever else
 * the machine does meets both.
 */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Schedule } from "effect"
import { ChildProcess } from "effect/process"
import { freePort } from "../scripts/local/host.ts"
import { attempt, Problem } from "../scripts/local/problem.ts"
import { answering, forwarding, startNginx } from "./proxy/nginx.ts"
import { requestsPerSecond } from "./proxy/wrk.ts"
import type { Bench } from "./support/bench.ts"

const ROUNDS = 7
const ROUND_SECONDS = 4
const WARM_UP_SECONDS = 2
const CONNECTIONS = 32
const BODY = "hello from the app"

/** Waits until the port answers with what the app says. */
const awaitAnswer = (what: string, port: number) =>
  Effect.tryPromise({
    try: async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/`)
      const body = await answer.text()
      if (answer.status !== 200 || body !== BODY) throw new Error(`${answer.status} ${body}`)
    },
    catch: (cause) => new Problem({ message: `${what} does not answer: ${cause}` })
  }).pipe(Effect.retry(Schedule.max([Schedule.spaced("100 millis"), Schedule.recurs(300)])))

const startProxy = (port: number, upstreamPort: number) =>
  ChildProcess.make(
    process.execPath,
    [join(import.meta.dirname, "proxy", "serve.ts"), String(port), "127.0.0.1", String(upstreamPort)],
    { stdin: "ignore", stdout: "ignore", stderr: "inherit", forceKillAfter: "5 seconds" }
  ).pipe(
    Effect.mapError((error) => new Problem({ message: `the proxy could not be started: ${error.message}` }))
  )

export const bench: Bench = {
  about:
    `wrk over ${CONNECTIONS} connections that are kept open, ${ROUNDS} rounds of ${ROUND_SECONDS} s each in turns: our proxy, ` +
    "and nginx (one worker, HTTP/1.1 and kept connections to the app, no access log, nothing buffered), both in front of " +
    `the same app, an nginx that answers ${BODY.length} bytes`,
  run: (say) =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        attempt("no folder for the bench", () => mkdtempSync(join(tmpdir(), "nibrunner-proxy-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
      )
      const appPort = yield* freePort(0)
      const nginxPort = yield* freePort(0)
      const ourPort = yield* freePort(0)
      yield* startNginx(join(folder, "app"), answering(appPort, BODY))
      yield* startNginx(join(folder, "nginx"), forwarding(nginxPort, appPort))
      yield* startProxy(ourPort, appPort)
      yield* awaitAnswer("the app", appPort)
      yield* awaitAnswer("nginx", nginxPort)
      yield* awaitAnswer("the proxy", ourPort)

      const measure = (port: number, seconds = ROUND_SECONDS) => requestsPerSecond(port, CONNECTIONS, seconds)
      for (const port of [nginxPort, ourPort]) yield* measure(port, WARM_UP_SECONDS)
      yield* say(`the app alone: ${(yield* measure(appPort)).toFixed(0)} requests a second`)
      const ratios: Array<number> = []
      for (let round = 1; round <= ROUNDS; round++) {
        const theirsFirst = round % 2 === 1
        const first = yield* measure(theirsFirst ? nginxPort : ourPort)
        const second = yield* measure(theirsFirst ? ourPort : nginxPort)
        const [theirs, ours] = theirsFirst ? [first, second] : [second, first]
        ratios.push(ours / theirs)
        yield* say(
          `round ${round}: nginx ${theirs.toFixed(0)}, ours ${ours.toFixed(0)} requests a second, ${(ours / theirs).toFixed(3)}`
        )
      }
      return { rps: { what: "requests a second, ours ÷ nginx", values: ratios, atLeast: 0.5 } }
    })
}
