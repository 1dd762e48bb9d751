/**
 * Many apps that sleep and wake under random traffic, by policy and by hand: no request fails, no counter loses or repeats a
 * number, and when the apps are gone nothing of them is left. By default a few apps for twenty seconds on each network;
 * NIBRUNNER_CYCLE_APPS and NIBRUNNER_CYCLE_SECONDS make it more, and have the figures printed.
 */
import { execFileSync } from "node:child_process"
import { readdirSync, readFileSync, readlinkSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, layer } from "@effect/vitest"
import { Clock, Effect, Fiber, Schedule, Semaphore } from "effect"
import type { LocalHost } from "../../scripts/local/host.ts"
import { sleepNow } from "../../scripts/local/sleep.ts"
import { seededRandom } from "../support/random.ts"
import {
  awaitHost,
  document,
  documentOf,
  instance,
  processesWith,
  put,
  request,
  snapshotsIn,
  startHost,
  vmmsOf,
  volume
} from "./harness.ts"
import { cleared, taps } from "./network/tap-world.ts"
import { inOwnNamespace } from "./own-namespace.ts"

const appCount = Number(process.env.NIBRUNNER_CYCLE_APPS ?? 6)
const seconds = Number(process.env.NIBRUNNER_CYCLE_SECONDS ?? 20)
const telling = process.env.NIBRUNNER_CYCLE_SECONDS !== undefined
/** Boots go two at a time, and take some seconds each. */
const limitMs = 240_000 + appCount * 15_000 + seconds * 1_000

/** Between two things that happen to one app: mostly soon, now and then after a while. */
const pauseMs = (random: () => number) => 6_000 * random() ** 3

interface Tally {
  requests: number
  sleeps: number
  refused: number
  slowestMs: number
}

const answers = (host: LocalHost, appId: string, tally: Tally) =>
  Effect.gen(function* () {
    const began = yield* Clock.currentTimeMillis
    const { status, body } = yield* request(host, appId, "/remember")
    assert.strictEqual(status, 200, `${appId}: ${body}`)
    tally.requests += 1
    tally.slowestMs = Math.max(tally.slowestMs, (yield* Clock.currentTimeMillis) - began)
    return Number(body)
  })

/** One caller, or some at once, again and again: together they are told each number once, in a row. */
const call = Effect.fnUntraced(function* (
  host: LocalHost,
  appId: string,
  random: () => number,
  until: number,
  tally: Tally
) {
  let count = 0
  while ((yield* Clock.currentTimeMillis) < until) {
    const callers = random() < 0.2 ? 4 : 1
    const told = yield* Effect.all(
      Array.from({ length: callers }, () => answers(host, appId, tally)),
      { concurrency: "unbounded" }
    )
    assert.deepStrictEqual(
      told.sort((left, right) => left - right),
      Array.from({ length: callers }, (_, index) => count + index + 1),
      appId
    )
    count += callers
    yield* Effect.sleep(pauseMs(random))
  }
  return count
})

/** The daemon talks to sixteen on its private socket. */
const asking = Semaphore.makeUnsafe(8)

/** Puts the app to sleep at random moments; who is asked at the wrong one says so. */
const lull = Effect.fnUntraced(function* (
  host: LocalHost,
  appId: string,
  random: () => number,
  until: number,
  tally: Tally
) {
  while ((yield* Clock.currentTimeMillis) < until) {
    yield* Effect.sleep(pauseMs(random))
    yield* asking
      .withPermits(1)(sleepNow(host, appId))
      .pipe(
        Effect.tap(() =>
          Effect.sync(() => {
            tally.sleeps += 1
          })
        ),
        Effect.catchIf(
          ({ message }) =>
            /something is open|is busy|is not up|sleeps already|is not healthy|not answered/u.test(message),
          () =>
            Effect.sync(() => {
              tally.refused += 1
            })
        )
      )
  }
})

/** What a process has open: the files by name, and how many sockets. */
const openOf = (pid: number) => {
  const targets = readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)]
    } catch {
      return [] // closed while we looked
    }
  })
  return {
    files: targets.filter((target) => target.startsWith("/")).sort(),
    sockets: targets.filter((target) => target.startsWith("socket:")).length
  }
}

/** The rules in force, without what they have counted and how often they were loaded. */
const rules = () =>
  execFileSync("nft", ["list", "ruleset"], { encoding: "utf8" })
    .replace(/packets \d+ bytes \d+/gu, "packets bytes")
    .replace(/comment "\w+-\d+"/u, "comment")

const entries = (...path: ReadonlyArray<string>) => readdirSync(join(...path))

const cycles = (network: "user" | "tap") =>
  Effect.gen(function* () {
    if (network === "tap") yield* cleared
    const { host, tenant, daemon } = yield* startHost({ maxApps: appCount, network, starts: 2 })
    yield* awaitHost(host, "ready", ({ state }) => state === "ready")
    yield* request(host, "nobody")
    const opened = openOf(daemon.pid)
    const ruled = network === "tap" ? rules() : ""

    const names = Array.from({ length: appCount }, (_, index) => `app-${index + 1}`)
    const activation = { sleepWhen: { kind: "traffic-idle", timeoutMs: 60_000 } }
    yield* put(
      host,
      documentOf(...names.map((appId) => instance(appId, tenant, { desiredState: "on-request", activation })))
    )
    yield* Effect.forEach(
      names,
      (appId) =>
        request(host, appId).pipe(
          Effect.filterOrFail(({ status }) => status === 200),
          Effect.retry({ schedule: Schedule.spaced("500 millis"), times: 600 })
        ),
      { concurrency: "unbounded" }
    )

    const tally: Tally = { requests: 0, sleeps: 0, refused: 0, slowestMs: 0 }
    const until = (yield* Clock.currentTimeMillis) + seconds * 1_000
    const lulling = yield* Effect.forkChild(
      Effect.forEach(names, (appId, index) => lull(host, appId, seededRandom(1_000 + index), until, tally), {
        concurrency: "unbounded",
        discard: true
      })
    )
    const counts = yield* Effect.forEach(
      names,
      (appId, index) => call(host, appId, seededRandom(index + 1), until, tally),
      { concurrency: "unbounded" }
    ).pipe(Effect.raceFirst(daemon.ended))
    yield* Fiber.join(lulling)
    yield* Effect.forEach(names, (appId, index) =>
      Effect.map(answers(host, appId, tally), (count) => assert.strictEqual(count, (counts[index] ?? 0) + 1))
    )
    assert.isAtLeast(tally.sleeps, appCount)

    const log = readFileSync(host.log, "utf8")
    assert.notMatch(log, /is booted: it has no snapshot/u)
    assert.notMatch(log, /"level":"(?:error|fatal)"/u)
    if (telling) {
      const byPolicy = log.match(/ sleeps \(idle\)/gu)?.length ?? 0
      yield* Effect.logInfo(
        `${network}, ${appCount} apps, ${seconds} s: ${tally.requests} requests, ${tally.sleeps} forced sleeps, ${byPolicy} by policy, ` +
          `${tally.refused} refused; the slowest answer took ${tally.slowestMs} ms`
      )
    }

    yield* put(
      host,
      document(
        names.map((appId) => volume(appId, { desiredState: "absent" })),
        []
      )
    )
    yield* awaitHost(
      host,
      "nobody is left",
      ({ instances, volumes }) => instances.length === 0 && volumes.every(({ state }) => state === "deleted")
    )
    yield* put(host, document([], []))
    yield* awaitHost(host, "nothing is left", ({ volumes }) => volumes.length === 0)

    assert.deepStrictEqual(vmmsOf(host), [])
    assert.deepStrictEqual(
      processesWith(host.folder).filter((pid) => pid !== daemon.pid),
      []
    )
    assert.deepStrictEqual(entries(host.runtime, "vm"), [])
    assert.deepStrictEqual(snapshotsIn(host), [])
    assert.deepStrictEqual(entries(host.folder, "state/volumes"), [])
    if (network === "tap") {
      assert.deepStrictEqual(taps(), [])
      assert.strictEqual(rules(), ruled)
    }
    yield* Effect.retry(
      Effect.suspend(() => {
        const { files, sockets } = openOf(daemon.pid)
        const same = sockets <= opened.sockets && files.join() === opened.files.join()
        return same
          ? Effect.void
          : Effect.fail(
              new Error(`it has open: ${sockets} sockets and ${files}; before: ${JSON.stringify(opened)}`)
            )
      }),
      { schedule: Schedule.spaced("250 millis"), times: 80 }
    )
  })

layer(NodeServices.layer, { excludeTestServices: true })("apps that sleep and wake all the time", (it) => {
  it.effect(
    "fail no request, lose no count and leave nothing, on the user network",
    () => cycles("user"),
    limitMs
  )
})

describe.skipIf(!inOwnNamespace)("apps that sleep and wake all the time", () => {
  layer(NodeServices.layer, { excludeTestServices: true })((it) => {
    it.effect("fail no request, lose no count and leave nothing, on taps", () => cycles("tap"), limitMs)
  })
})
