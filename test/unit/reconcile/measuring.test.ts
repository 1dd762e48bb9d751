import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { TestClock } from "effect/testing"
import type { AppId } from "../../../src/document/schema.ts"
import { HostStateError } from "../../../src/services/HostState.ts"
import { recordedLog } from "../../support/log.ts"
import { documentOf, rawDocument, rawInstance, rawVolume, running, stopped } from "./documents.ts"
import { type Host, hostRunning, makeHost } from "./harness.ts"

const MIB = 2 ** 20

const seconds = (count: number) =>
  Effect.forEach(Array.from({ length: count }), () => TestClock.adjust(1_000), { discard: true })

const untilMeasured = (host: Host, appId: string, within = 20_000) =>
  host.until(`${appId} is measured`, () => host.instanceOf(appId)?.compute !== undefined, within)

/** Starts the next daemon, and waits for its first word of the app. */
const startAgain = Effect.fnUntraced(function* (host: Host, appId: string) {
  const before = host.reporter.reports.length
  yield* host.start()
  yield* host.until("it reports", () => host.reporter.reports.length > before)
  yield* host.untilState(appId, "running")
})

const metersIn = (host: Host, appId: string) => host.state.meters.get(appId as AppId)?.meters

describe("a guest that runs", () => {
  it.effect("is measured a few seconds after its boot, and reported soon after", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* untilMeasured(host, "app-1")
      const compute = host.instanceOf("app-1")?.compute
      assert.strictEqual(compute?.memoryTotalBytes, 256 * MIB)
      assert.strictEqual(compute?.memoryUsedBytes, 32 * MIB)
      assert.notProperty(compute, "cpuShare")
      assert.match(compute?.measuredAt ?? "", /^1970-01-01T00:00:0\d/u)
      assert.deepStrictEqual(host.report()?.volumes[0]?.usage, {
        totalBytes: 60 * MIB,
        usedBytes: MIB,
        measuredAt: compute?.measuredAt ?? ""
      })
    })
  )

  it.effect(
    "is measured again at least once a minute, from then on with the share of CPU time it was busy",
    () =>
      Effect.gen(function* () {
        const host = yield* hostRunning("app-1")
        yield* untilMeasured(host, "app-1")
        yield* seconds(600)
        const asked = host.machine.callsOf("usage", "app-1").length
        assert.isAtLeast(asked, 10)
        assert.isAtMost(asked, 12)
        assert.approximately(host.instanceOf("app-1")?.compute?.cpuShare ?? -1, 0.01, 0.002)
      })
  )

  it.effect("that does not answer keeps its last measurement, and is said once not to", () => {
    const log = recordedLog()
    return Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* untilMeasured(host, "app-1")
      const before = host.instanceOf("app-1")?.compute
      host.machine.always("usage", "app-1", { fail: "it thinks" })
      yield* seconds(300)
      assert.isAbove(host.machine.callsOf("usage", "app-1").length, 4)
      assert.deepStrictEqual(host.instanceOf("app-1")?.compute, before)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      const said = log.lines.filter((line) => line.includes("not measured"))
      assert.deepStrictEqual(said, [
        "Warn app-1 is not measured, its last measurement stands: the guest could not be asked to tell what it uses: it thinks"
      ])
      host.machine.always("usage", "app-1", undefined)
      yield* seconds(90)
      assert.notStrictEqual(host.instanceOf("app-1")?.compute?.measuredAt, before?.measuredAt)
    }).pipe(Effect.provide(log.layer))
  })

  it.effect("is not believed when it says that it has more than it was given", () => {
    const log = recordedLog()
    return Effect.gen(function* () {
      const host = yield* makeHost()
      host.machine.usageAnswer("app-1", { memoryTotalBytes: 2 ** 40 })
      yield* host.start()
      yield* host.run("app-1")
      yield* seconds(120)
      assert.isUndefined(host.instanceOf("app-1")?.compute)
      assert.isUndefined(host.report()?.volumes[0]?.usage)
      assert.isTrue(log.lines.some((line) => line.includes(`${2 ** 40} bytes of memory, and was given`)))
    }).pipe(Effect.provide(log.layer))
  })

  it.effect("is measured by the next daemon too", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* untilMeasured(host, "app-1")
      yield* host.stop()
      const asked = host.machine.callsOf("usage", "app-1").length
      yield* startAgain(host, "app-1")
      assert.isUndefined(host.instanceOf("app-1")?.compute)
      yield* host.until("it is asked", () => host.machine.callsOf("usage", "app-1").length > asked, 5_000)
      yield* untilMeasured(host, "app-1")
    })
  )
})

describe("a guest that falls asleep", () => {
  const quietForAMinute = documentOf(
    rawInstance("app-1", {
      desiredState: "on-request",
      activation: { sleepWhen: { kind: "traffic-idle", timeoutMs: 60_000 } }
    })
  )

  it.effect("is asked nothing before it is up again, and nobody complains", () => {
    const log = recordedLog()
    return Effect.gen(function* () {
      const host = yield* makeHost()
      const gate = yield* Deferred.make<void>()
      host.machine.next("sleep", "app-1", { stallUntil: gate })
      yield* host.start()
      yield* host.put(quietForAMinute)
      yield* host.until("it falls asleep", () => host.machine.callsOf("sleep").length === 1)
      const asked = host.machine.callsOf("usage").length
      host.machine.always("usage", "app-1", { fail: "it is frozen" })
      yield* seconds(180)
      assert.strictEqual(host.machine.callsOf("usage").length, asked)
      yield* Deferred.succeed(gate, undefined)
      yield* host.untilState("app-1", "idle")
      assert.deepStrictEqual(
        log.lines.filter((line) => line.includes("not measured")),
        []
      )
    }).pipe(Effect.provide(log.layer))
  })

  it.effect("is measured again after a sleep that failed", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.machine.always("sleep", "app-1", { fail: "no space is left" })
      yield* host.start()
      yield* host.put(quietForAMinute)
      yield* host.until("its sleep has failed", () => host.instanceOf("app-1")?.message !== undefined)
      const asked = host.machine.callsOf("usage").length
      yield* seconds(61)
      assert.isAbove(host.machine.callsOf("usage").length, asked)
    })
  )
})

describe("a guest that is stopped", () => {
  it.effect(
    "has no compute any more, but what is known of its volume stays, over a restart of the daemon",
    () =>
      Effect.gen(function* () {
        const host = yield* hostRunning("app-1")
        yield* untilMeasured(host, "app-1")
        const usage = host.report()?.volumes[0]?.usage
        yield* host.put(stopped("app-1"))
        yield* host.untilState("app-1", "stopped")
        assert.isUndefined(host.instanceOf("app-1")?.compute)
        assert.deepStrictEqual(host.report()?.volumes[0]?.usage, usage)
        const asked = host.machine.callsOf("usage").length
        yield* host.stop()
        yield* host.start()
        yield* host.untilState("app-1", "stopped")
        yield* seconds(120)
        assert.deepStrictEqual(host.report()?.volumes[0]?.usage, usage)
        assert.strictEqual(host.machine.callsOf("usage").length, asked)
      })
  )

  it.effect("loses what is known of its volume with the volume", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* untilMeasured(host, "app-1")
      yield* host.put(rawDocument({ volumes: [rawVolume("app-1", { desiredState: "absent" })] }))
      yield* host.until("it is deleted", () => host.report()?.volumes[0]?.state === "deleted")
      assert.isUndefined(host.report()?.volumes[0]?.usage)
    })
  )
})

describe("guests that are slow to answer", () => {
  it.effect("are asked at most four at once, and keep the others from nothing", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const slow = ["a", "b", "c", "d", "e", "f", "g"]
      const answer = yield* Deferred.make<void>()
      for (const appId of slow) host.machine.always("usage", appId, { stallUntil: answer })
      yield* host.start()
      yield* host.run(...slow)
      // Each has been asked once, and did not answer.
      yield* seconds(60)
      assert.deepStrictEqual(
        slow.filter((appId) => host.machine.callsOf("usage", appId).length === 0),
        []
      )
      // From now on one newcomer meets those that wait for nothing.
      yield* host.put(running(...slow, "quick"))
      yield* host.untilState("quick", "running")
      const before = host.machine.callsOf("usage").length
      yield* TestClock.adjust(4_000)
      assert.strictEqual(host.machine.callsOf("usage", "quick").length, 1)
      assert.isAtMost(host.machine.callsOf("usage").length - before, 4)
      yield* untilMeasured(host, "quick")
    })
  )

  it.effect("are never more than four at once", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const all = Array.from({ length: 12 }, (_, index) => `app-${index}`)
      const answer = yield* Deferred.make<void>()
      host.machine.always("usage", "*", { stallUntil: answer })
      yield* host.start()
      yield* host.run(...all)
      yield* TestClock.adjust(5_000)
      assert.isAtMost(host.machine.callsOf("usage").length, 4)
      yield* Deferred.succeed(answer, undefined)
      host.machine.always("usage", "*", undefined)
      yield* host.until("all are measured", () =>
        all.every((appId) => host.instanceOf(appId)?.compute !== undefined)
      )
    })
  )

  it.effect("hold up neither their app's next step nor the passing of time", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.machine.always("usage", "*", { stallUntil: yield* Deferred.make<void>() })
      yield* host.start()
      yield* host.put(running("app-1"))
      yield* host.machine.awaitCall("usage", "app-1").pipe(Effect.forkChild)
      yield* host.untilState("app-1", "running")
      yield* host.until("it is asked", () => host.machine.callsOf("usage", "app-1").length > 0)
      yield* seconds(9)
      yield* host.put(stopped("app-1"))
      yield* host.until("it is stopped", () => host.instanceOf("app-1")?.state === "stopped", 5_000)
      assert.isAtLeast(host.instanceOf("app-1")?.meters?.runningMs ?? 0, 5_000)
    })
  )
})

describe("the meters of an app", () => {
  it.effect("are 0 when it is new, and grow with the time that it runs and what its volume holds", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      assert.deepStrictEqual(host.instanceOf("app-1")?.meters, {
        runningMs: 0,
        idleMs: 0,
        cpuMs: 0,
        rxBytes: 0,
        txBytes: 0,
        diskProvisionedMibSeconds: 0,
        diskUsedMibSeconds: 0
      })
      yield* seconds(600)
      host.machine.usageAnswer("app-1", { cpuBusyTicks: 1_006, receivedBytes: 7_000, sentBytes: 9_000 })
      yield* seconds(120)
      const meters = host.instanceOf("app-1")?.meters
      assert.approximately(meters?.runningMs ?? 0, 720_000, 70_000)
      assert.strictEqual(meters?.idleMs, 0)
      // The ticks before the first reading are nobody's.
      assert.approximately(meters?.cpuMs ?? 0, 10_060, 60)
      assert.strictEqual(meters?.rxBytes, 7_000)
      assert.strictEqual(meters?.txBytes, 9_000)
      assert.approximately(meters?.diskProvisionedMibSeconds ?? 0, 64 * 720, 64 * 70)
      assert.approximately(meters?.diskUsedMibSeconds ?? 0, 720, 80)
    })
  )

  it.effect("count its volume also while it is stopped, and no time", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* untilMeasured(host, "app-1")
      yield* host.put(stopped("app-1"))
      yield* host.untilState("app-1", "stopped")
      yield* seconds(60)
      const before = host.instanceOf("app-1")?.meters
      yield* seconds(600)
      const after = host.instanceOf("app-1")?.meters
      assert.strictEqual(after?.runningMs, before?.runningMs)
      assert.approximately(
        (after?.diskProvisionedMibSeconds ?? 0) - (before?.diskProvisionedMibSeconds ?? 0),
        64 * 600,
        64 * 61
      )
      assert.approximately((after?.diskUsedMibSeconds ?? 0) - (before?.diskUsedMibSeconds ?? 0), 600, 61)
    })
  )

  it.effect(
    "are written down when the daemon ends, and go on with the next; the time between is nobody's",
    () =>
      Effect.gen(function* () {
        const host = yield* hostRunning("app-1")
        yield* seconds(101)
        yield* host.stop()
        const written = metersIn(host, "app-1")
        assert.isAtLeast(written?.runningMs ?? 0, 100_000)
        yield* seconds(3_600)
        yield* startAgain(host, "app-1")
        assert.strictEqual(host.instanceOf("app-1")?.meters?.runningMs, written?.runningMs)
        yield* seconds(60)
        yield* host.stop()
        const gained = (metersIn(host, "app-1")?.runningMs ?? 0) - (written?.runningMs ?? 0)
        assert.approximately(gained, 60_000, 10_000)
      })
  )

  it.effect(
    "count the CPU time of the time between once: the next daemon goes on from the last reading",
    () =>
      Effect.gen(function* () {
        const host = yield* hostRunning("app-1")
        host.machine.usageAnswer("app-1", { cpuTotalTicks: 1_000, cpuBusyTicks: 100 })
        yield* untilMeasured(host, "app-1")
        yield* host.stop()
        yield* seconds(3_600)
        host.machine.usageAnswer("app-1", { cpuTotalTicks: 361_000, cpuBusyTicks: 2_100 })
        yield* startAgain(host, "app-1")
        yield* untilMeasured(host, "app-1")
        assert.strictEqual(host.instanceOf("app-1")?.meters?.cpuMs, 20_000)
      })
  )

  it.effect("lose at most what was not written yet when the daemon is killed", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* seconds(110)
      // From here on nothing reaches the disk, as nothing does that a killed daemon had in mind.
      const { script } = host.state
      script.fail("saveMeters", new HostStateError({ operation: "save", cause: new Error("dead") }))
      const written = metersIn(host, "app-1")?.runningMs ?? 0
      assert.isAtLeast(written, 110_000 - 25_000)
      yield* seconds(10)
      yield* host.crash()
      script.clear()
      yield* startAgain(host, "app-1")
      assert.strictEqual(host.instanceOf("app-1")?.meters?.runningMs, written)
    })
  )

  it.effect("are kept in memory while the notes cannot be written, said once, and written later", () => {
    const log = recordedLog()
    return Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const { script } = host.state
      script.fail(
        "saveMeters",
        new HostStateError({ operation: "save the meters", cause: new Error("disk full") })
      )
      yield* seconds(100)
      assert.strictEqual(metersIn(host, "app-1")?.runningMs ?? 0, 0)
      assert.strictEqual(log.lines.filter((line) => line.includes("disk full")).length, 1)
      script.clear()
      yield* seconds(25)
      assert.isAtLeast(metersIn(host, "app-1")?.runningMs ?? 0, 100_000)
    }).pipe(Effect.provide(log.layer))
  })

  it.effect("are written in one transaction for all apps, three times a minute", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1", "app-2", "app-3")
      const before = host.state.script.count("saveMeters")
      yield* seconds(600)
      assert.approximately(host.state.script.count("saveMeters") - before, 30, 1)
    })
  )

  it.effect("are forgotten when the document names the app no more, and begin at 0 when it comes back", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1", "app-2")
      yield* seconds(100)
      yield* host.put(running("app-2"))
      yield* host.until("it is gone", () => host.machine.machineOf("app-1") === undefined)
      yield* seconds(25)
      assert.deepStrictEqual([...host.state.meters.keys()], ["app-2"])
      yield* host.put(running("app-1", "app-2"))
      yield* host.untilState("app-1", "running")
      assert.isBelow(host.instanceOf("app-1")?.meters?.runningMs ?? Number.NaN, 10_000)
      assert.isAtLeast(host.instanceOf("app-2")?.meters?.runningMs ?? 0, 100_000)
    })
  )

  it.effect("are kept as long as the document names a volume of the app", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* seconds(100)
      yield* host.put(rawDocument({ volumes: [rawVolume("app-1")] }))
      yield* host.until("it is gone", () => host.instanceOf("app-1") === undefined)
      yield* seconds(30)
      yield* host.run("app-1")
      assert.isAtLeast(host.instanceOf("app-1")?.meters?.runningMs ?? 0, 100_000)
    })
  )

  it.effect("make no report by growing alone: those of a stopped app are reported once a minute", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      yield* host.put(stopped("app-1"))
      yield* host.untilState("app-1", "stopped")
      yield* seconds(60)
      const before = host.reporter.reports.length
      yield* seconds(600)
      assert.approximately(host.reporter.reports.length - before, 10, 1)
    })
  )

  it.effect("and measurements of many guests make at most four reports a minute", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning(...Array.from({ length: 16 }, (_, index) => `app-${index}`))
      yield* seconds(60)
      const before = host.reporter.reports.length
      yield* seconds(600)
      assert.isAtMost(host.reporter.reports.length - before, 41)
    })
  )
})
