/**
 * What goes wrong while an app falls asleep or wakes: its daemon or its VMM is killed, the disk is full, there is no memory,
 * the snapshot is gone, the document changes. The app answers again with its volume whole, and its memory is the one that it
 * had or a new one, never a part of one.
 */
import { execFileSync } from "node:child_process"
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs"
import * as http from "node:http"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Fiber, Schedule } from "effect"
import type { LocalHost } from "../../scripts/local/host.ts"
import { readReport } from "../../scripts/local/report.ts"
import { sleepNow } from "../../scripts/local/sleep.ts"
import { seededRandom } from "../support/random.ts"
import {
  awaitHost,
  awaitInstance,
  awaitListening,
  awaitState,
  bodyOf,
  type Changes,
  document,
  documentOf,
  instance,
  makeHost,
  put,
  request,
  runDaemon,
  snapshotsIn,
  tenantLayer,
  vmmsOf,
  volume
} from "./harness.ts"
import { mortalDaemon } from "./mortal-daemon.ts"

/** The app is up; what went wrong with it before may take a moment to be repaired. */
const answers = (host: LocalHost) =>
  request(host, "app-1").pipe(
    Effect.filterOrFail(({ status }) => status === 200),
    Effect.retry({ schedule: Schedule.spaced("100 millis"), times: 600 })
  )

const onRequest = {
  desiredState: "on-request",
  activation: { sleepWhen: { kind: "never" } },
  restartPolicy: { maxRestarts: 100 }
}

/** A host with a document of one on-request app, and no daemon yet. */
const laidOut = Effect.gen(function* () {
  const host = yield* makeHost()
  const tenant = yield* tenantLayer(host)
  const of = (changes: Changes = {}) => documentOf(instance("app-1", tenant, { ...onRequest, ...changes }))
  yield* put(host, of())
  return { host, tenant, of }
})

const deployed = Effect.gen(function* () {
  const laid = yield* laidOut
  const daemon = yield* runDaemon(laid.host)
  yield* awaitState(laid.host, "app-1", "running")
  return { ...laid, daemon }
})

/** A daemon that serves, and dies by itself at the points of `CRASH_AT`. */
const servingUntil = (host: LocalHost, points: string) =>
  Effect.tap(mortalDaemon(host, points), ({ words }) =>
    awaitListening(host).pipe(Effect.mapError(() => new Error(`it does not listen: ${words()}`)))
  )

const sleepPoints = [
  "session.freeze:before",
  "session.freeze:after",
  "hypervisor.sleep:before",
  "hypervisor.sleep:after",
  "hypervisor.sleep:after state.saveApp:before",
  "hypervisor.sleep:after state.saveApp:after"
]

const wakePoints = [
  "hypervisor.snapshot:after",
  "volumes.attach:after",
  "network.attach:after",
  "hypervisor.wake:before",
  "hypervisor.wake:after",
  "guest.connect:after",
  "session.thaw:before",
  "session.thaw:after",
  "session.thaw:after state.saveApp:before",
  "session.thaw:after state.saveApp:after"
].map((point) => `hypervisor.sleep:after state.saveApp:after ${point}`)

/** Counts and writes, and expects what the rounds before have left. */
const makeRounds = (host: LocalHost) => {
  let count = 0
  return {
    /** The app goes on where it was. */
    same: (what: string) =>
      Effect.gen(function* () {
        if (count > 0) {
          assert.strictEqual(yield* bodyOf(host, "/read?path=note"), `200 round ${count}`, what)
        }
        count += 1
        assert.strictEqual(yield* bodyOf(host, "/remember"), `200 ${count}`, what)
        assert.strictEqual(yield* bodyOf(host, `/write?path=note&body=round+${count}`), "200 written", what)
        assert.deepStrictEqual(snapshotsIn(host), [], what)
        assert.strictEqual(vmmsOf(host).length, 1, what)
      }),
    /** The app goes on where it was or began anew; its volume is the one of the round before. True: where it was. */
    sameOrNew: (what: string) =>
      Effect.gen(function* () {
        assert.strictEqual(yield* bodyOf(host, "/read?path=note"), `200 round ${count}`, what)
        const found = yield* bodyOf(host, "/remember")
        assert.include([`200 ${count + 1}`, "200 1"], found, what)
        const same = found === `200 ${count + 1}`
        count = same ? count + 1 : 1
        assert.strictEqual(yield* bodyOf(host, `/write?path=note&body=round+${count}`), "200 written", what)
        assert.deepStrictEqual(snapshotsIn(host), [], what)
        assert.strictEqual(vmmsOf(host).length, 1, what)
        return same
      })
  }
}

const killVmms = (host: LocalHost) =>
  Effect.sync(() => {
    for (const pid of vmmsOf(host)) process.kill(pid, "SIGKILL")
  })

layer(NodeServices.layer, { excludeTestServices: true })("an app whose daemon is killed", (it) => {
  it.effect("at any step of its sleep has its memory and its volume under the next daemon", () =>
    Effect.gen(function* () {
      const { host } = yield* laidOut
      const rounds = makeRounds(host)
      for (const points of sleepPoints) {
        const daemon = yield* servingUntil(host, points)
        yield* awaitInstance(host, "app-1", "up or asleep", ({ state }) =>
          ["running", "idle"].includes(state)
        )
        yield* rounds.same(`before ${points}`)
        yield* Effect.flip(sleepNow(host, "app-1"))
        yield* daemon.died
      }
      yield* runDaemon(host)
      yield* awaitListening(host)
      yield* rounds.same("after all")
    })
  )

  it.effect("at any step of its wake has its memory and its volume under the next daemon", () =>
    Effect.gen(function* () {
      const { host } = yield* laidOut
      const rounds = makeRounds(host)
      for (const points of wakePoints) {
        const daemon = yield* servingUntil(host, points)
        yield* awaitInstance(host, "app-1", "up or asleep", ({ state }) =>
          ["running", "idle"].includes(state)
        )
        yield* rounds.same(`before ${points}`)
        yield* sleepNow(host, "app-1")
        yield* Effect.exit(bodyOf(host, "/"))
        yield* daemon.died
      }
      yield* runDaemon(host)
      yield* awaitListening(host)
      yield* rounds.same("after all")
    })
  )

  it.effect("at random moments of sleep and wake has its memory and its volume under the next daemon", () =>
    Effect.gen(function* () {
      const next = seededRandom(4)
      const { host, daemon: first } = yield* deployed
      const rounds = makeRounds(host)
      let daemon = first
      for (let round = 0; round < 5; round++) {
        yield* rounds.same(`before round ${round}`)
        const waking = round % 2 === 1
        if (waking) yield* sleepNow(host, "app-1")
        const ms = Math.floor(next() * 350)
        const doing = yield* Effect.forkChild(
          Effect.exit(waking ? Effect.asVoid(bodyOf(host, "/")) : sleepNow(host, "app-1")),
          { startImmediately: true }
        )
        yield* Effect.sleep(ms)
        yield* daemon.kill
        yield* Fiber.join(doing)
        daemon = yield* runDaemon(host)
        yield* awaitListening(host)
      }
      yield* rounds.same("after all")
    })
  )
})

layer(NodeServices.layer, { excludeTestServices: true })("an app whose VMM is killed", (it) => {
  it.effect("at random moments of its sleep answers the next request, as it was or anew", () =>
    Effect.gen(function* () {
      const next = seededRandom(17)
      const { host } = yield* deployed
      const rounds = makeRounds(host)
      yield* rounds.same("at first")
      for (let round = 0; round < 4; round++) {
        const ms = Math.floor(next() * 300)
        const falling = yield* Effect.forkChild(Effect.exit(sleepNow(host, "app-1")), {
          startImmediately: true
        })
        yield* Effect.sleep(ms)
        yield* killVmms(host)
        yield* Fiber.join(falling)
        yield* answers(host)
        yield* rounds.sameOrNew(`killed after ${ms} ms`)
      }
    })
  )

  it.effect("at random moments of its wake answers whoever woke it, from a boot", () =>
    Effect.gen(function* () {
      const next = seededRandom(23)
      const { host } = yield* deployed
      const rounds = makeRounds(host)
      yield* rounds.same("at first")
      for (let round = 0; round < 3; round++) {
        const ms = Math.floor(next() * 150)
        yield* sleepNow(host, "app-1")
        assert.deepStrictEqual(vmmsOf(host), [])
        const asking = yield* Effect.forkChild(request(host, "app-1"), { startImmediately: true })
        yield* Effect.repeat(
          Effect.sync(() => vmmsOf(host)),
          { until: (pids) => pids.length > 0, schedule: Schedule.spaced("5 millis") }
        )
        yield* Effect.sleep(ms)
        yield* killVmms(host)
        // Once it has the request the request may be lost with it; before that, nobody may notice.
        assert.include([200, 502], (yield* Fiber.join(asking)).status, `killed after ${ms} ms`)
        yield* answers(host)
        yield* rounds.sameOrNew(`killed after ${ms} ms`)
      }
    })
  )
})

describe.skipIf(process.getuid?.() !== 0)("an app whose snapshot directory is a small disk (as root)", () => {
  layer(NodeServices.layer, { excludeTestServices: true })((it) => {
    it.effect("runs on with its memory while the disk is full, and sleeps when there is room again", () =>
      Effect.gen(function* () {
        const { host, of } = yield* laidOut
        const mount = (...args: ReadonlyArray<string>) =>
          execFileSync("mount", [...args, host.snapshots], { stdio: ["ignore", "pipe", "pipe"] })
        yield* Effect.acquireRelease(
          Effect.sync(() => mount("-t", "tmpfs", "-o", "size=100m", "small")),
          () => Effect.sync(() => execFileSync("umount", ["-l", host.snapshots]))
        )
        const resize = (size: string) => mount("-o", `remount,size=${size}`)
        yield* runDaemon(host)
        yield* put(host, of())
        yield* awaitState(host, "app-1", "running")
        const rounds = makeRounds(host)

        yield* rounds.same("at first")
        assert.match((yield* Effect.flip(sleepNow(host, "app-1"))).message, /has 0\.10 GiB free/u)
        yield* rounds.same("after a sleep that does not fit")

        // There is room when it begins, and none any more before it is done.
        resize("256m")
        const shrinking = yield* Effect.forkChild(
          Effect.gen(function* () {
            while (!existsSync(join(host.snapshots, ".pending-app-1"))) yield* Effect.sleep(1)
            resize("24m")
          })
        )
        assert.match((yield* Effect.flip(sleepNow(host, "app-1"))).message, /is full/u)
        yield* Fiber.join(shrinking)
        yield* rounds.same("after a sleep on which the disk filled up")

        resize("256m")
        yield* sleepNow(host, "app-1")
        assert.deepStrictEqual(vmmsOf(host), [])
        yield* rounds.same("after a sleep that fitted")
      })
    )
  })
})

/** One request, and the headers of what it is answered. */
const answerOf = (host: LocalHost) =>
  Effect.callback<{ readonly status: number; readonly retryAfter: string | undefined }, Error>((resume) => {
    const sent = http.get(
      { host: "127.0.0.1", port: host.proxyPort, headers: { host: "app-1.example.com" }, agent: false },
      (response) => {
        response.resume()
        resume(
          Effect.succeed({ status: response.statusCode ?? 0, retryAfter: response.headers["retry-after"] })
        )
      }
    )
    sent.on("error", (error) => resume(Effect.fail(error)))
    return Effect.sync(() => sent.destroy())
  }).pipe(Effect.timeout("30 seconds"))

layer(NodeServices.layer, { excludeTestServices: true })("an app that sleeps", (it) => {
  it.effect(
    "sleeps on while there is no memory for it, its callers are told when to ask again, and wakes later",
    () =>
      Effect.gen(function* () {
        const { host, tenant } = yield* deployed
        const rounds = makeRounds(host)
        yield* rounds.same("at first")
        yield* sleepNow(host, "app-1")
        const kept = readdirSync(join(host.snapshots, "app-1"))

        const { capacity } = yield* readReport(host)
        const memoryMib = capacity.memoryMib - 64
        // It holds its memory from before it is booted, and need not come up for that.
        const wide = instance("wide", tenant, { memoryMib })
        const app = instance("app-1", tenant, onRequest)
        yield* put(host, document([volume("app-1"), volume("wide")], [app, wide]))
        yield* awaitInstance(host, "wide", "it holds its memory", ({ state }) => state === "starting")
        yield* awaitHost(host, "the VMM of the wide app", () => vmmsOf(host).length > 0)

        for (let caller = 1; caller <= 3; caller++) {
          const { status, retryAfter } = yield* answerOf(host)
          assert.strictEqual(status, 503)
          assert.isAbove(Number(retryAfter), 0)
        }
        assert.deepStrictEqual(readdirSync(join(host.snapshots, "app-1")), kept)
        yield* awaitState(host, "app-1", "idle")

        yield* put(host, document([volume("app-1"), volume("wide")], [app]))
        yield* awaitHost(host, "the wide app is gone", () => vmmsOf(host).length === 0)
        yield* answers(host)
        yield* rounds.same("when there is room again")
      })
  )

  it.effect("and whose snapshot is gone is booted for its caller, who sees nothing of it but the time", () =>
    Effect.gen(function* () {
      const { host } = yield* deployed
      const rounds = makeRounds(host)
      yield* rounds.same("at first")
      yield* sleepNow(host, "app-1")
      rmSync(join(host.snapshots, "app-1"), { recursive: true })
      const together = yield* Effect.all(
        Array.from({ length: 8 }, () => request(host, "app-1", "/remember")),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        together.map(({ status, body }) => `${status} ${body.trim()}`).sort(),
        Array.from({ length: 8 }, (_, index) => `200 ${index + 1}`)
      )
      assert.strictEqual(yield* bodyOf(host, "/read?path=note"), "200 round 1")
      const { restartCount, state } = yield* awaitState(host, "app-1", "running")
      assert.deepStrictEqual({ restartCount, state }, { restartCount: 0, state: "running" })
      assert.include(readFileSync(host.log, "utf8"), "no snapshot that can be woken")
    })
  )

  it.effect("and is given a new release answers callers of that moment as the new release", () =>
    Effect.gen(function* () {
      const { host, of } = yield* deployed
      yield* makeRounds(host).same("at first")
      yield* sleepNow(host, "app-1")
      yield* put(host, of({ deploymentId: "dep-2", environment: { RELEASE: "two" } }))
      yield* awaitInstance(host, "app-1", "the new release", ({ deploymentId }) => deploymentId === "dep-2")
      assert.strictEqual(yield* bodyOf(host, "/env?name=RELEASE"), "200 two")
      assert.strictEqual(yield* bodyOf(host, "/remember"), "200 1")
      assert.strictEqual(yield* bodyOf(host, "/read?path=note"), "200 round 1")
      assert.deepStrictEqual(snapshotsIn(host), [])
    })
  )

  it.effect("or was stopped and is on-request again is booted by the next request, and not before", () =>
    Effect.gen(function* () {
      const { host, of } = yield* deployed
      yield* makeRounds(host).same("at first")
      yield* sleepNow(host, "app-1")
      yield* put(host, of({ desiredState: "stopped" }))
      yield* awaitState(host, "app-1", "stopped")
      // It is stopped, whatever is still to be cleared away.
      while (snapshotsIn(host).length > 0) yield* Effect.sleep(20)
      assert.strictEqual((yield* request(host, "app-1")).status, 503)
      yield* put(host, of())
      yield* awaitState(host, "app-1", "idle")
      assert.deepStrictEqual(vmmsOf(host), [])
      assert.strictEqual(yield* bodyOf(host, "/remember"), "200 1")
      assert.strictEqual(yield* bodyOf(host, "/read?path=note"), "200 round 1")
    })
  )
})
