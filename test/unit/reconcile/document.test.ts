/** What the host makes of the documents that are put before it. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { putReading, readAgain, removeDocument } from "../../../layers/testing/DocumentSource.ts"
import { HostStateError } from "../../../src/services/HostState.ts"
import { NO_CHECKPOINTS } from "../../../src/services/VolumeBackend.ts"
import { documentOf, rawDocument, rawInstance, rawVolume, running, stopped } from "./documents.ts"
import { hostRunning, makeHost, startHost } from "./harness.ts"

const waiting = "waits for the first document: there is no /memory/desired.json yet"

describe("a host without a document", () => {
  it.effect("is ready, reports four empty lists, and waits for its first one", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.until("it reports", () => host.report() !== undefined)
      const report = host.report()
      assert.strictEqual(report?.state, "ready")
      assert.deepStrictEqual(
        [report?.volumes, report?.instances, report?.checkpoints, report?.exports],
        [[], [], [], []]
      )
      assert.strictEqual(report?.message, waiting)
      assert.isUndefined(report?.acceptedDigest)
    })
  )
})

describe("a document", () => {
  it.effect("is reported by its revision and the digest of its bytes", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(rawDocument({ revision: "2026-09-23T10:00:00Z/7" }))
      yield* host.until("it is accepted", () => host.report()?.acceptedDigest !== undefined)
      assert.strictEqual(host.report()?.acceptedRevision, "2026-09-23T10:00:00Z/7")
      assert.strictEqual(host.report()?.hostId, "host-1")
      assert.match(host.report()?.acceptedDigest ?? "", /^[0-9a-f]{64}$/)
    })
  )

  it.effect("that is the same again starts nothing, and neither does one with other white space", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const calls = host.machine.callsOf("boot").length
      yield* readAgain(host.source)
      yield* host.put(JSON.stringify(running("app-1"), null, 4))
      yield* TestClock.adjust("30 seconds")
      assert.strictEqual(host.machine.callsOf("boot").length, calls)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
    })
  )

  it.effect("that the host cannot judge, by a fault of its own, is refused: no document ends a daemon", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const bytes = new Proxy(new Uint8Array(1), {
        get: () => {
          throw new RangeError("too much of it")
        }
      })
      yield* putReading(host.source, { kind: "read", bytes, digest: "0".repeat(64) })
      const sentence =
        / is refused: it cannot be judged, by a fault of nibrunnerd itself: RangeError: too much of it$/u
      yield* host.until("it is refused", () => sentence.test(host.report()?.message ?? ""))
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      yield* host.put(running("app-1", "app-2"))
      yield* host.untilState("app-2", "running")
    })
  )

  it.effect("is looked at again after 100 ms before it is refused: a half-written one does no harm", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.until("the first report", () => host.report() !== undefined)
      const whole = JSON.stringify(running("app-1"))
      yield* host.put(whole.slice(0, 200))
      yield* TestClock.adjust(50)
      // The writer goes on without a watcher's event.
      const bytes = new TextEncoder().encode(whole)
      host.source.current = { kind: "read", bytes, digest: "e".repeat(64) }
      yield* host.untilState("app-1", "running")
      const told = new Set(host.reporter.reports.map(({ message }) => message))
      assert.deepStrictEqual([...told], [waiting, null])
    })
  )

  it.effect(
    "that cannot be read is refused with the reason, counted once, and the last good one stays in force",
    () =>
      Effect.gen(function* () {
        const host = yield* hostRunning("app-1")
        yield* putReading(host.source, { kind: "unreadable", reason: "permission denied" })
        yield* host.until("it is told", () => /permission denied/.test(host.report()?.message ?? ""))
        assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      })
  )

  it.effect(
    "that is deleted stays in force, which is said until it is there again, and by the next daemon",
    () =>
      Effect.gen(function* () {
        const host = yield* makeHost()
        const says = (message: string | null) =>
          host.until(`the host says ${message}`, () => host.report()?.message === message)
        const document = { ...running("app-1"), revision: "r-7" }
        yield* host.start()
        yield* says(waiting)
        yield* host.put(document)
        yield* host.untilState("app-1", "running")
        yield* says(null)
        const gone =
          "/memory/desired.json is gone; the document that was accepted last (revision r-7) stays in force"
        yield* removeDocument(host.source)
        yield* says(gone)
        yield* TestClock.adjust("2 minutes")
        assert.strictEqual(host.instanceOf("app-1")?.state, "running")
        assert.strictEqual(host.report()?.acceptedRevision, "r-7")
        yield* host.put("{")
        yield* host.until("it is refused", () =>
          / is refused: .* \(line 1, column 2\)$/u.test(host.report()?.message ?? "")
        )
        yield* removeDocument(host.source)
        yield* says(gone)
        yield* host.put(document)
        yield* says(null)
        yield* removeDocument(host.source)
        yield* says(gone)
        yield* host.stop()
        yield* host.start()
        yield* says(gone)
        yield* host.put(document)
        yield* says(null)
        assert.strictEqual(host.machine.callsOf("boot").length, 1)
      })
  )

  it.effect("that is deleted and written anew within 100 ms was never gone", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const before = host.source.current
      const reports = host.reporter.reports.length
      yield* removeDocument(host.source)
      yield* TestClock.adjust(50)
      host.source.current = before
      yield* TestClock.adjust("2 minutes")
      assert.isTrue(host.reporter.reports.slice(reports).every(({ message }) => message === null))
    })
  )

  it.effect("that cannot be written to the notes is not acted on, and is taken up when it can", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.state.script.fail(
        "accept",
        new HostStateError({ operation: "accept a document", cause: new Error("the disk is full") }),
        { times: 2 }
      )
      yield* host.start()
      yield* host.put(running("app-1"))
      yield* host.until("it is told", () => /disk is full/.test(host.report()?.message ?? ""))
      assert.deepStrictEqual(host.report()?.instances, [])
      assert.strictEqual(host.machine.callsOf("boot").length, 0)
      yield* readAgain(host.source)
      yield* readAgain(host.source)
      yield* host.untilState("app-1", "running")
      assert.isNull(host.report()?.message)
    })
  )

  it.effect("never has a value of its environments or arguments in a report, whatever is wrong with it", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      const command = {
        program: "/app/server",
        args: ["--token", "hunter2"],
        workingDirectory: "/app",
        environment: { PASSWORD: "hunter2", BROKEN: "hunter2-$NIBRUN_NOPE" }
      }
      yield* host.put(documentOf(rawInstance("app-1", { config: { command } })))
      yield* host.until("it is refused", () => typeof host.report()?.message === "string")
      assert.match(host.report()?.message ?? "", /BROKEN/)
      const ok = { ...command, environment: { PASSWORD: "hunter2" } }
      yield* host.put(documentOf(rawInstance("app-1", { config: { command: ok } })))
      yield* host.untilState("app-1", "running")
      assert.notInclude(JSON.stringify(host.reporter.reports), "hunter2")
    })
  )
})

describe("apps that come and go", () => {
  it.effect("keep their slot and microVM as others join: 1, then 3, then 6", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      const names = ["a", "b", "c", "d", "e", "f"]
      for (const count of [1, 3, 6]) {
        const before = new Map(
          host.report()?.instances.map(({ appId, hostPort }) => [appId as string, hostPort])
        )
        yield* host.put(running(...names.slice(0, count)))
        yield* host.until(
          `${count} run`,
          () => host.report()?.instances.filter(({ state }) => state === "running").length === count
        )
        for (const [appId, hostPort] of before) assert.strictEqual(host.instanceOf(appId)?.hostPort, hostPort)
      }
      assert.deepStrictEqual(
        names.map((name) => host.machine.callsOf("boot", name).length),
        names.map(() => 1)
      )
    })
  )

  it.effect("fill the host to its last slot, and only the one too many is told so", () =>
    Effect.gen(function* () {
      const host = yield* startHost({ settings: { maxApps: 63 }, machine: { memoryMib: 100_000 } })
      const names = Array.from({ length: 64 }, (_, index) => `app-${index}`)
      yield* host.put(running(...names))
      yield* host.until(
        "63 run",
        () => host.report()?.instances.filter(({ state }) => state === "running").length === 63
      )
      const unplaced = host.report()?.instances.find(({ state }) => state !== "running")
      assert.strictEqual(unplaced?.state, "failed")
      assert.match(unplaced?.message ?? "", /max_apps/)
      assert.isUndefined(unplaced?.hostPort)
    })
  )

  it.effect("leave nothing behind when the whole host is emptied", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      const names = ["a", "b", "c", "d", "e", "f"]
      yield* host.put(running(...names))
      yield* host.until(
        "all run",
        () =>
          host.report()?.instances.every(({ state }) => state === "running") === true &&
          host.report()?.instances.length === 6
      )
      yield* host.put(
        rawDocument({ volumes: names.map((name) => rawVolume(name, { desiredState: "absent" })) })
      )
      yield* host.until(
        "all volumes are deleted",
        () => host.report()?.volumes.every(({ state }) => state === "deleted") === true
      )
      assert.deepStrictEqual(host.machine.machines, [])
      assert.deepStrictEqual([...host.machine.links], [])
      assert.strictEqual(host.routes.size, 0)
      yield* host.put(rawDocument())
      yield* host.until("nothing is reported", () => host.report()?.volumes.length === 0)
      assert.strictEqual(host.state.apps.size, 0)
    })
  )

  it.effect("leave as many links as apps run after 20 rounds of deploy and remove", () =>
    Effect.gen(function* () {
      const host = yield* startHost({ settings: { maxApps: 4 } })
      for (let round = 0; round < 20; round++) {
        const name = `app-${round}`
        yield* host.put(running("stays", name))
        yield* host.untilState(name, "running")
        yield* host.put(
          rawDocument({
            ...running("stays"),
            volumes: [rawVolume("stays"), rawVolume(name, { desiredState: "absent" })]
          })
        )
        yield* host.until(
          "it is gone",
          () => host.report()?.volumes.some(({ state }) => state === "deleted") === true
        )
        assert.strictEqual(host.machine.links.size, 1)
      }
      assert.strictEqual(host.machine.callsOf("boot", "stays").length, 1)
    })
  )

  it.effect(
    "can be stopped from the first document on: a held app answers for itself and is never booted",
    () =>
      Effect.gen(function* () {
        const host = yield* startHost()
        yield* host.put(stopped("app-1"))
        yield* host.untilState("app-1", "stopped")
        assert.strictEqual(host.routes.get("app-1")?.target.kind, "unavailable")
        assert.strictEqual(host.machine.callsOf("boot").length, 0)
        assert.isUndefined(host.instanceOf("app-1")?.layerDigests)
      })
  )

  it.effect("hand a hostname over from one to the other in one document", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      const named = (appId: string, hostname: string) =>
        rawInstance(appId, { hostnames: [{ hostname, kind: "custom" }] })
      yield* host.put(documentOf(named("app-1", "x.example.com"), named("app-2", "y.example.com")))
      yield* host.untilRunning("app-1", "app-2")
      yield* host.put(documentOf(named("app-1", "y.example.com"), named("app-2", "x.example.com")))
      yield* host.until(
        "both are swapped",
        () =>
          host.routes.get("app-1")?.hostnames[0] === "y.example.com" &&
          host.routes.get("app-2")?.hostnames[0] === "x.example.com"
      )
    })
  )

  it.effect("have a second volume made but told that nobody uses it", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      const second = rawVolume("app-1", { volumeId: "second" })
      yield* host.put(
        rawDocument({ volumes: [rawVolume("app-1"), second], instances: [rawInstance("app-1")] })
      )
      yield* host.untilState("app-1", "running")
      yield* host.until(
        "the second is made",
        () => host.report()?.volumes.find(({ volumeId }) => volumeId === "second")?.state === "ready"
      )
      const report = host.report()?.volumes.find(({ volumeId }) => volumeId === "second")
      assert.match(report?.message ?? "", /not used/)
    })
  )
})

describe("on volumes that are files on this disk", () => {
  it.effect("checkpoints and exports fail with one sentence, nothing is frozen, and the app goes on", () =>
    Effect.gen(function* () {
      const host = yield* startHost({ volumesAreFiles: true })
      yield* host.put({
        ...running("app-1"),
        checkpoints: [{ checkpointId: "c-1", volumeId: "app-1-vol", desiredState: "present" }],
        exports: [
          { exportId: "e-1", appId: "app-1", volumeId: "app-1-vol", objectKey: "x", desiredState: "present" }
        ]
      })
      yield* host.untilState("app-1", "running")
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(host.report()?.checkpoints[0]?.state, "failed")
      assert.strictEqual(host.report()?.checkpoints[0]?.message, NO_CHECKPOINTS)
      assert.strictEqual(host.report()?.exports[0]?.state, "failed")
      assert.strictEqual(host.report()?.exports[0]?.message, NO_CHECKPOINTS)
      assert.strictEqual(host.machine.callsOf("freeze-volume").length, 0)
      assert.strictEqual(host.exported.objects.size, 0)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
    })
  )
})
