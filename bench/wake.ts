/**
 * What a caller of a sleeping app waits for, against the least that wakes the same guest.
 *
 * Ours: from the connection to the proxy to the whole answer. The other: `support/bare-sleeper.ts`, from the start of QEMU
 * to the whole answer at its forwarded port, polled. Both wake the same machine from the same files and with the same
 * disks (the other one's volume is a copy), one after the other, each first every other time.
 *
 * - `single`: one caller, one app.
 * - `coalesced`: 32 callers at once, one app, until the last has its answer.
 * - `concurrent`: 4 apps at once, 8 callers each, until the last of all has its answer.
 * - `streamed`: one caller, against QEMU that loads all of the machine from one stream that it had saved itself.
 */
import { get } from "node:http"
import { join } from "node:path"
import { Effect } from "effect"
import { freePort } from "../scripts/local/host.ts"
import { Problem } from "../scripts/local/problem.ts"
import { type App, hostOfSleepers } from "./support/asleep.ts"
import {
  type BareSleeper,
  forgetSleeper,
  keepSleeper,
  type Sleeper,
  saveStream,
  wakeBare,
  wakeStreamed
} from "./support/bare-sleeper.ts"
import type { Bench } from "./support/bench.ts"

const ROUNDS = { single: 30, coalesced: 9, concurrent: 9, streamed: 9 } as const
const LIMIT_MS = 60_000
/** Who waits for the bare machine tries again after so long, whatever became of the earlier tries. */
const POLL_MS = 5

const fromPromise = <A>(what: string, run: () => Promise<A>) =>
  Effect.tryPromise({ try: run, catch: (error) => new Problem({ message: `${what}: ${error}` }) })

interface Asked {
  readonly port: number
  readonly app: App
}

/** One request; done when all of a 200 has arrived. */
const ask = ({ port, app }: Asked, done: (error: Error | undefined) => void) =>
  get(
    { host: "127.0.0.1", port, path: app.path, headers: { host: app.hostname }, agent: false },
    (response) => {
      response.resume()
      response.on("error", done)
      response.on("end", () =>
        done(response.statusCode === 200 ? undefined : new Error(`the answer is ${response.statusCode}`))
      )
    }
  ).on("error", done)

const once = (asked: Asked) =>
  Effect.callback<void, Problem>((resume) => {
    const request = ask(asked, (error) =>
      resume(
        error === undefined ? Effect.void : new Problem({ message: `${asked.app.appId}: ${error.message}` })
      )
    )
    return Effect.sync(() => request.destroy())
  })

/** QEMU has room for one connection that it has not accepted, and the kernel loses others that come at once for a long time. */
const insisting = (asked: Asked) => Effect.eventually(once(asked).pipe(Effect.timeout(POLL_MS * 20)))

/** Asked until there is an answer; tries that hang are given up then. */
const polled = (asked: Asked) =>
  Effect.callback<void>((resume) => {
    const tries = new Set<ReturnType<typeof ask>>()
    const stop = () => {
      clearInterval(poll)
      for (const request of tries) request.destroy()
    }
    const poll = setInterval(() => {
      tries.add(
        ask(asked, (error) => {
          if (error !== undefined) return
          stop()
          resume(Effect.void)
        })
      )
    }, POLL_MS)
    return Effect.sync(stop)
  })

const elapsed = <E, R>(what: string, run: Effect.Effect<unknown, E, R>) =>
  Effect.gen(function* () {
    const start = performance.now()
    yield* run.pipe(
      Effect.timeoutOrElse({
        duration: LIMIT_MS,
        orElse: () => new Problem({ message: `${what} did not answer within ${LIMIT_MS / 1000} s` })
      })
    )
    return performance.now() - start
  })

const all = <A, E, R>(effects: ReadonlyArray<Effect.Effect<A, E, R>>) =>
  Effect.all(effects, { concurrency: "unbounded", discard: true })

const repeat = <A>(times: number, value: A) => Array.from({ length: times }, () => value)

/** Wakes bare machines at once, with so many callers each. */
const bareTime = (
  machines: ReadonlyArray<{ readonly app: App; readonly wake: (hostPort: number) => BareSleeper }>,
  callers: number
) =>
  Effect.gen(function* () {
    const ports = yield* Effect.forEach(machines, () => freePort(0))
    const running: Array<BareSleeper> = []
    return yield* elapsed(
      "bare QEMU",
      Effect.suspend(() => {
        for (const [index, { wake }] of machines.entries()) running.push(wake(ports[index] ?? 0))
        return all([
          ...running.map(({ restored }) => fromPromise("bare QEMU cannot restore", () => restored)),
          ...machines.map(({ app }, index) => {
            const asked = { port: ports[index] ?? 0, app }
            // one looks when it is there; then it is there for the others
            return Effect.andThen(polled(asked), all(repeat(callers - 1, insisting(asked))))
          })
        ])
      })
    ).pipe(Effect.ensuring(Effect.promise(() => Promise.all(running.map(({ end }) => end())))))
  })

export const bench: Bench = {
  about: `from a request for a sleeping app to its answer, against bare QEMU; ${ROUNDS.single} pairs of one caller, and ${ROUNDS.coalesced} of many`,
  run: (say) =>
    Effect.gen(function* () {
      const { host, folder, apps, sleep } = yield* hostOfSleepers(4)
      const [first] = apps
      if (first === undefined) return yield* new Problem({ message: "the host has no app" })

      const laidDown = (app: App) =>
        Effect.map(sleep(app), ({ snapshot, booted }) => ({
          app,
          sleeper: keepSleeper(folder, booted, snapshot, app.guestPort)
        }))
      const ours = (woken: ReadonlyArray<App>, callers: number) =>
        elapsed("the host", all(woken.flatMap((app) => repeat(callers, once({ port: host.proxyPort, app })))))
      const mapped = ({ app, sleeper }: { readonly app: App; readonly sleeper: Sleeper }) => ({
        app,
        wake: (hostPort: number) => wakeBare(sleeper, hostPort)
      })

      /** One pair: the apps are put to sleep, and woken by both. */
      const pair = Effect.fnUntraced(function* (
        round: number,
        woken: ReadonlyArray<App>,
        callers: number,
        streamed = false
      ) {
        const asleep = yield* Effect.forEach(woken, laidDown)
        const machines: Array<Parameters<typeof bareTime>[0][number]> = []
        for (const one of asleep) {
          if (!streamed) machines.push(mapped(one))
          else {
            const stream = join(one.sleeper.folder, "stream")
            const port = yield* freePort(0)
            yield* fromPromise("QEMU cannot save", () => saveStream(one.sleeper, stream, port))
            machines.push({
              app: one.app,
              wake: (hostPort: number) => wakeStreamed(one.sleeper, stream, hostPort)
            })
          }
        }
        const mine = ours(woken, callers)
        const theirs = bareTime(machines, callers)
        const [a, b] =
          round % 2 === 1
            ? [yield* mine, yield* theirs]
            : yield* Effect.map(Effect.all([theirs, mine]), ([other, own]) => [own, other] as const)
        for (const { sleeper } of asleep) forgetSleeper(sleeper)
        return { mine: a, other: b }
      })

      const run = Effect.fnUntraced(function* (
        name: keyof typeof ROUNDS,
        woken: ReadonlyArray<App>,
        callers: number,
        streamed = false
      ) {
        const pairs: Array<{ readonly mine: number; readonly other: number }> = []
        // the first warms the machine's caches and is not counted
        yield* pair(0, woken, callers, streamed)
        for (let round = 1; round <= ROUNDS[name]; round++) {
          const { mine, other } = yield* pair(round, woken, callers, streamed)
          pairs.push({ mine, other })
          yield* say(
            `${name} ${round}: ours ${mine.toFixed(0)} ms, bare QEMU ${other.toFixed(0)} ms, ratio ${(mine / other).toFixed(3)}`
          )
        }
        const sorted = pairs.map(({ mine }) => mine).sort((x, y) => x - y)
        const at = (share: number) => sorted[Math.ceil(share * sorted.length) - 1]?.toFixed(0)
        yield* say(`${name}: ours p50 ${at(0.5)} ms, p99 ${at(0.99)} ms`)
        return pairs.map(({ mine, other }) => mine / other)
      })

      const single = yield* run("single", [first], 1)
      const coalesced = yield* run("coalesced", [first], 32)
      const concurrent = yield* run("concurrent", apps, 8)
      const streamed = yield* run("streamed", [first], 1, true)
      return {
        single: { what: "one caller, ours ÷ bare QEMU", values: single, atMost: 1.15 },
        coalesced: { what: "32 callers of one app, ours ÷ bare QEMU", values: coalesced, atMost: 1.15 },
        concurrent: {
          what: "8 callers of each of 4 apps, ours ÷ bare QEMU",
          values: concurrent,
          atMost: 1.25
        },
        streamed: { what: "one caller, ours ÷ QEMU that loads a stream", values: streamed, atMost: 1 }
      }
    })
}
