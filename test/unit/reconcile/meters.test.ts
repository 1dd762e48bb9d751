import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import type { AppId, VolumeId } from "../../../src/document/schema.ts"
import { type Measured, Measurements, type Unsaved } from "../../../src/reconcile/measurements.ts"
import {
  afterHolding,
  afterReading,
  type Counters,
  elapsedBetween,
  nothingUsed
} from "../../../src/reconcile/meters.ts"
import type { AppStatus } from "../../../src/reconcile/status.ts"
import type { InstanceState } from "../../../src/report/schema.ts"
import type { GuestUsage } from "../../../src/services/Guest.ts"
import type { MeterRecord, Meters } from "../../../src/services/HostState.ts"

const MIB = 2 ** 20
const states: ReadonlyArray<InstanceState> = [
  "pending",
  "starting",
  "running",
  "unhealthy",
  "idle",
  "stopping",
  "stopped",
  "failed"
]
const counters = (more: Partial<Counters> = {}): Counters => ({
  machineId: "one",
  at: 0,
  cpuBusyTicks: 0,
  receivedBytes: 0,
  sentBytes: 0,
  ...more
})

describe("time", () => {
  it("counts as it passed, up to ten seconds: a daemon that was suspended bills no more", () => {
    assert.strictEqual(elapsedBetween(1_000, 6_000), 5_000)
    assert.strictEqual(elapsedBetween(0, 10_000), 10_000)
    assert.strictEqual(elapsedBetween(0, 3_600_000), 10_000)
  })

  it("counts nothing when the clock went back", () => {
    assert.strictEqual(elapsedBetween(3_600_000, 0), 0)
  })

  it("counts as running while a microVM is up, as idle while it sleeps, and else as neither", () => {
    const counted = (state: InstanceState | undefined) => {
      const { runningMs, idleMs } = afterHolding(nothingUsed, { state, volumes: [] }, 5_000)
      return runningMs > 0 ? "running" : idleMs > 0 ? "idle" : "nothing"
    }
    assert.deepStrictEqual(
      states.filter((state) => counted(state) === "running"),
      ["starting", "running", "unhealthy", "stopping"]
    )
    assert.deepStrictEqual(
      states.filter((state) => counted(state) === "idle"),
      ["idle"]
    )
    assert.strictEqual(counted(undefined), "nothing")
  })

  it("counts volumes by their size and by what is in them, also without an instance", () => {
    const volumes = [
      { sizeBytes: 64 * MIB, usedBytes: 8 * MIB },
      { sizeBytes: MIB / 2, usedBytes: 0 }
    ]
    const after = afterHolding(nothingUsed, { state: undefined, volumes }, 5_000)
    assert.strictEqual(after.diskProvisionedMibSeconds, 322.5)
    assert.strictEqual(after.diskUsedMibSeconds, 40)
  })

  it("counts no more of a volume than its size, whatever its guest says", () => {
    const volumes = [{ sizeBytes: 2 * MIB, usedBytes: Number.MAX_SAFE_INTEGER }]
    assert.strictEqual(afterHolding(nothingUsed, { state: "stopped", volumes }, 1_000).diskUsedMibSeconds, 2)
  })
})

describe("the counters of a guest", () => {
  it("count what was added since the reading before, a tick as 10 ms", () => {
    const before = counters({ cpuBusyTicks: 100, receivedBytes: 1_000, sentBytes: 5 })
    const now = counters({ at: 60_000, cpuBusyTicks: 350, receivedBytes: 1_500, sentBytes: 5 })
    assert.deepStrictEqual(afterReading(nothingUsed, before, now, 1), {
      ...nothingUsed,
      cpuMs: 2_500,
      rxBytes: 500
    })
  })

  it("count nothing at the first reading of a microVM", () => {
    const now = counters({ cpuBusyTicks: 500 })
    assert.strictEqual(afterReading(nothingUsed, undefined, now, 1), nothingUsed)
    assert.strictEqual(afterReading(nothingUsed, counters({ machineId: "two" }), now, 1), nothingUsed)
  })

  it("count from 0 when they went back", () => {
    const before = counters({ cpuBusyTicks: 1_000, sentBytes: 1_000 })
    const now = counters({ at: 60_000, cpuBusyTicks: 20, sentBytes: 30 })
    assert.deepInclude(afterReading(nothingUsed, before, now, 1), { cpuMs: 200, txBytes: 30 })
  })

  it("count no more CPU time than its vCPUs could have had since, whatever the guest says", () => {
    const now = counters({ at: 60_000, cpuBusyTicks: Number.MAX_SAFE_INTEGER })
    assert.strictEqual(afterReading(nothingUsed, counters(), now, 2).cpuMs, 2 * 75_000)
  })

  it("count no more bytes than any link could have moved since", () => {
    const now = counters({ at: 1_000, receivedBytes: Number.MAX_SAFE_INTEGER })
    assert.isBelow(afterReading(nothingUsed, counters(), now, 2).rxBytes, 2 ** 40)
  })

  it("stop at 2^53 - 1", () => {
    const full: Meters = { ...nothingUsed, rxBytes: Number.MAX_SAFE_INTEGER - 1 }
    const now = counters({ at: 60_000, receivedBytes: 1_000_000 })
    assert.strictEqual(afterReading(full, counters(), now, 1).rxBytes, Number.MAX_SAFE_INTEGER)
  })
})

const app = "app" as AppId
const volume = "vol" as VolumeId
const guest: Measured = {
  appId: app,
  machineId: "one",
  vcpuCount: 2,
  memoryMib: 128,
  volumeId: volume,
  volumeBytes: 64 * MIB
}
const usage = (more: Partial<GuestUsage> = {}): GuestUsage => ({
  volumeTotalBytes: 60 * MIB,
  volumeUsedBytes: MIB,
  memoryTotalBytes: 100 * MIB,
  memoryUsedBytes: 30 * MIB,
  cpuTotalTicks: 0,
  cpuBusyTicks: 0,
  receivedBytes: 0,
  sentBytes: 0,
  ...more
})
const status = (state: InstanceState | undefined, exists = true): ReadonlyMap<AppId, AppStatus> =>
  new Map([
    [
      app,
      {
        appId: app,
        slot: 0,
        instance: state === undefined ? undefined : ({ state } as NonNullable<AppStatus["instance"]>),
        volumes: [
          { volumeId: volume, appId: app, state: "ready", sizeBytes: 64 * MIB, exists, message: undefined }
        ]
      }
    ]
  ])
const named = () => {
  const measurements = new Measurements()
  measurements.keepOnly(new Set([app]))
  return measurements
}

describe("what a guest says of itself", () => {
  it("is its memory, and the busy share of its CPUs since the reading before", () => {
    const measurements = named()
    measurements.note(guest, usage({ cpuTotalTicks: 600, cpuBusyTicks: 100 }), 1_000)
    assert.deepStrictEqual(measurements.of(app)?.compute, {
      memoryTotalBytes: 100 * MIB,
      memoryUsedBytes: 30 * MIB,
      cpuShare: undefined,
      measuredAt: 1_000
    })
    measurements.note(guest, usage({ cpuTotalTicks: 1_600, cpuBusyTicks: 350 }), 61_000)
    assert.strictEqual(measurements.of(app)?.compute?.cpuShare, 0.25)
  })

  it("tells no share when its counters stand still, went back, or are another microVM's", () => {
    const first = usage({ cpuTotalTicks: 1_000, cpuBusyTicks: 100 })
    const shareAfter = (next: GuestUsage, machineId = "one") => {
      const measurements = named()
      measurements.note(guest, first, 0)
      measurements.note({ ...guest, machineId }, next, 60_000)
      return measurements.of(app)?.compute?.cpuShare
    }
    assert.isUndefined(shareAfter(first))
    assert.isUndefined(shareAfter(usage({ cpuTotalTicks: 10, cpuBusyTicks: 1 })))
    assert.isUndefined(shareAfter(usage({ cpuTotalTicks: 2_000, cpuBusyTicks: 99 })))
    assert.isUndefined(shareAfter(usage({ cpuTotalTicks: 1_001, cpuBusyTicks: 999 })))
    assert.isUndefined(shareAfter(usage({ cpuTotalTicks: 2_000, cpuBusyTicks: 200 }), "two"))
  })

  it("is not believed when it has more memory or volume than it was given, or no memory", () => {
    const measurements = named()
    measurements.note(guest, usage(), 1)
    const before = measurements.of(app)
    const lies = [
      usage({ memoryTotalBytes: 129 * MIB }),
      usage({ memoryTotalBytes: 0, memoryUsedBytes: 0 }),
      usage({ volumeTotalBytes: 65 * MIB })
    ]
    for (const lie of lies) assert.isString(measurements.note(guest, lie, 2))
    assert.include(measurements.note(guest, usage({ volumeTotalBytes: 65 * MIB }), 2), String(64 * MIB))
    assert.deepStrictEqual(measurements.of(app), before)
  })

  it("leaves what is known of the volume when the volume is not mounted", () => {
    const measurements = named()
    measurements.note(guest, usage(), 1)
    measurements.note(guest, usage({ volumeTotalBytes: 0, volumeUsedBytes: 0 }), 2)
    assert.deepStrictEqual(measurements.of(app)?.volumes, [
      { volumeId: volume, totalBytes: 60 * MIB, usedBytes: MIB, measuredAt: 1 }
    ])
  })

  it("is forgotten with its microVM, but not what is known of the volume, nor for an older microVM's end", () => {
    const measurements = named()
    measurements.note(guest, usage(), 1)
    measurements.letGo(app, "zero")
    assert.isDefined(measurements.of(app)?.compute)
    measurements.letGo(app, "one")
    assert.isUndefined(measurements.of(app)?.compute)
    assert.strictEqual(measurements.of(app)?.volumes.length, 1)
  })

  it("is nothing for an app that the document does not name", () => {
    const measurements = new Measurements()
    measurements.note(guest, usage(), 1)
    measurements.pass(status("running"), 0)
    measurements.pass(status("running"), 5_000)
    assert.isUndefined(measurements.of(app))
  })

  it("of a volume goes with the volume", () => {
    const measurements = named()
    measurements.note(guest, usage(), 1)
    measurements.pass(status("stopped", false), 0)
    assert.deepStrictEqual(measurements.of(app)?.volumes, [])
  })
})

describe("what is to be written down", () => {
  const write = (measurements: Measurements) => {
    const unsaved = measurements.unsaved
    measurements.saved(unsaved)
    return unsaved
  }

  it("is what has changed since it was written", () => {
    const measurements = named()
    measurements.pass(status("running"), 0)
    assert.strictEqual(write(measurements).records.length, 1)
    measurements.pass(status("running"), 5_000)
    assert.strictEqual(write(measurements).records[0]?.meters.runningMs, 5_000)
    assert.deepStrictEqual(write(measurements), { records: [], forgotten: [] })
  })

  it("stays to be written when the writing failed", () => {
    const measurements = named()
    measurements.pass(status("running"), 0)
    measurements.pass(status("running"), 5_000)
    assert.deepStrictEqual(measurements.unsaved, measurements.unsaved)
  })

  it("is that an app is forgotten, once, when the document names it no more", () => {
    const measurements = named()
    write(measurements)
    measurements.keepOnly(new Set())
    assert.deepStrictEqual(write(measurements), { records: [], forgotten: [app] })
    assert.deepStrictEqual(write(measurements), { records: [], forgotten: [] })
  })

  it("is that an app is forgotten whose record is just being written", () => {
    const measurements = named()
    const underWay = measurements.unsaved
    measurements.keepOnly(new Set())
    measurements.saved(underWay)
    assert.deepStrictEqual(measurements.unsaved.forgotten, [app])
  })

  it("begins at 0 for an app that left and came back", () => {
    const measurements = named()
    measurements.pass(status("running"), 0)
    measurements.pass(status("running"), 5_000)
    write(measurements)
    measurements.keepOnly(new Set())
    measurements.keepOnly(new Set([app]))
    assert.deepStrictEqual(measurements.of(app)?.meters, nothingUsed)
    assert.strictEqual(write(measurements).records[0]?.meters.runningMs, 0)
  })
})

describe("meters", () => {
  const whole = fc.nat(2 ** 30)
  const large = fc.oneof(whole, fc.maxSafeNat())
  const time = fc.oneof(fc.nat(100_000), fc.integer({ min: -(2 ** 40), max: 2 ** 45 }))
  const act = fc.oneof(
    fc.record({ kind: fc.constant("pass" as const), at: time, state: fc.constantFrom(...states) }),
    fc.record({
      kind: fc.constant("note" as const),
      at: time,
      machineId: fc.constantFrom("one", "two"),
      cpuBusyTicks: large,
      receivedBytes: large,
      sentBytes: large,
      volumeUsedBytes: fc.nat(60 * MIB)
    }),
    fc.constant({ kind: "save" as const }),
    fc.constant({ kind: "save-fails" as const }),
    fc.constant({ kind: "restart" as const }),
    fc.constant({ kind: "let-go" as const })
  )
  const numbers = (meters: Meters | undefined): ReadonlyArray<number> => Object.values(meters ?? nothingUsed)

  /** One daemon after another over one set of notes. */
  const life = (acts: ReadonlyArray<typeof act extends fc.Arbitrary<infer A> ? A : never>) => {
    const notes = new Map<AppId, MeterRecord>()
    let measurements = named()
    const store = ({ records, forgotten }: Unsaved) => {
      for (const appId of forgotten) notes.delete(appId)
      for (const record of records) notes.set(record.appId, structuredClone(record))
    }
    return acts.map((next) => {
      const before = measurements.of(app)?.meters
      if (next.kind === "pass") measurements.pass(status(next.state), next.at)
      if (next.kind === "note") {
        const { kind: _, at, machineId, ...said } = next
        const cpuTotalTicks = Number.MAX_SAFE_INTEGER
        measurements.note({ ...guest, machineId }, usage({ ...said, cpuTotalTicks }), at)
      }
      if (next.kind === "save") {
        const unsaved = measurements.unsaved
        store(unsaved)
        measurements.saved(unsaved)
      }
      if (next.kind === "save-fails") assert.isAtMost(measurements.unsaved.records.length, 1)
      if (next.kind === "let-go") measurements.letGo(app, "one")
      if (next.kind === "restart") {
        measurements = new Measurements()
        measurements.load([...notes.values()])
        measurements.keepOnly(new Set([app]))
      }
      return { next, before, after: measurements.of(app)?.meters, noted: notes.get(app)?.meters }
    })
  }

  it("never become smaller, nor larger than can be written, whatever comes in whatever order", () => {
    fc.assert(
      fc.property(fc.array(act, { maxLength: 60 }), (acts) => {
        for (const { next, before, after, noted } of life(acts)) {
          const least = next.kind === "restart" ? numbers(noted) : numbers(before)
          numbers(after).forEach((value, index) => {
            assert.isAtLeast(value, least[index] ?? 0)
            assert.isAtMost(value, Number.MAX_SAFE_INTEGER)
          })
          // What another daemon goes on from is exactly what was written down.
          if (next.kind === "restart") assert.deepStrictEqual(numbers(after), least)
        }
      }),
      { numRuns: 300 }
    )
  })

  it("never count time or CPU time twice, over any number of restarts", () => {
    const step = fc.record({
      ms: fc.nat(8_000),
      busy: fc.nat(400),
      next: fc.constantFrom("save", "restart", "go on")
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        let at = 0
        let busyTicks = 0
        const acts = steps.flatMap(({ ms, busy, next }) => {
          at += ms
          busyTicks += busy
          const said = { machineId: "one" as const, cpuBusyTicks: busyTicks, receivedBytes: 0, sentBytes: 0 }
          return [
            { kind: "pass" as const, at, state: "running" as const },
            { kind: "note" as const, at, volumeUsedBytes: 0, ...said },
            ...(next === "go on" ? [] : [{ kind: next as "save" | "restart" }])
          ]
        })
        const last = life(acts).at(-1)?.after
        assert.isAtMost(last?.runningMs ?? 0, at)
        assert.isAtMost(last?.cpuMs ?? 0, busyTicks * 10)
      }),
      { numRuns: 300 }
    )
  })
})
