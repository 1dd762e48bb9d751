/** Checkpoints and exports of volumes, as the document asks for them. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { TestClock } from "effect/testing"
import { memoryBundle } from "../../../layers/testing/BundleWriter.ts"
import type { Stall } from "../../../layers/testing/Script.ts"
import type { CheckpointId, ExportId } from "../../../src/document/schema.ts"
import { BundleError } from "../../../src/services/BundleWriter.ts"
import { StoreUnavailable } from "../../../src/services/ExportStore.ts"
import { HostStateError } from "../../../src/services/HostState.ts"
import { CheckpointError, VolumeError } from "../../../src/services/VolumeBackend.ts"
import { documentOf, rawDocument, rawInstance, running, stopped, volumeOf } from "./documents.ts"
import { type Host, type HostOptions, makeHost, startHost } from "./harness.ts"

const appId = "app-1"
const volumeId = volumeOf(appId)

const rawExport = (changes: Record<string, unknown> = {}) => ({
  exportId: "e-1",
  appId,
  volumeId,
  objectKey: "exports/app-1.tar.gz",
  desiredState: "present",
  ...changes
})

const rawCheckpoint = (changes: Record<string, unknown> = {}) => ({
  checkpointId: "c-1",
  volumeId,
  desiredState: "present",
  ...changes
})

/** The document that runs the app, and asks for these. */
const withExports = (...exports: ReadonlyArray<unknown>) => ({ ...running(appId), exports })
const withCheckpoints = (...checkpoints: ReadonlyArray<unknown>) => ({ ...running(appId), checkpoints })

const exportOf = (host: Host, id = "e-1") => host.report()?.exports.find(({ exportId }) => exportId === id)
const checkpointOf = (host: Host, id = "c-1") =>
  host.report()?.checkpoints.find(({ checkpointId }) => checkpointId === id)

/** A host on which the app runs. */
const hostWithApp = (options?: HostOptions) => Effect.tap(startHost(options), (host) => host.run(appId))

const untilExport = (host: Host, state: string, id = "e-1") =>
  host.until(`export ${id} is ${state}`, () => exportOf(host, id)?.state === state)
const untilCheckpoint = (host: Host, state: string, id = "c-1") =>
  host.until(`checkpoint ${id} is ${state}`, () => checkpointOf(host, id)?.state === state)

/** What goes wrong with the checkpoint of the export. */
const checkpointError = (operation: CheckpointError["operation"], reason: string) =>
  new CheckpointError({ checkpoint: "export-e-1", operation, reason })

const isFrozen = (host: Host): boolean => host.machine.machineOf(appId)?.volumeFrozen !== undefined
const names = (host: Host) => [...host.volumes.checkpoints.keys()]

describe("a checkpoint", () => {
  it.effect("is cut once, flushed before, and is ready with what the store calls it", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      yield* host.put(withCheckpoints(rawCheckpoint()))
      yield* untilCheckpoint(host, "ready")
      assert.strictEqual(checkpointOf(host)?.reference, "memory-1")
      assert.isString(checkpointOf(host)?.readyAt)
      const operations = host.volumes.script.calls.map(({ operation }) => operation)
      assert.isBelow(operations.indexOf("flush"), operations.indexOf("createCheckpoint"))
      yield* TestClock.adjust("10 minutes")
      yield* host.stop()
      yield* host.start()
      yield* untilCheckpoint(host, "ready")
      assert.strictEqual(checkpointOf(host)?.reference, "memory-1")
      assert.strictEqual(host.volumes.script.count("createCheckpoint"), 1)
    })
  )

  it.effect("that is absent is deleted, said to be, and leaves the report with the document", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      yield* host.put(withCheckpoints(rawCheckpoint()))
      yield* untilCheckpoint(host, "ready")
      yield* host.put(withCheckpoints(rawCheckpoint({ desiredState: "absent" })))
      yield* untilCheckpoint(host, "deleted")
      assert.deepStrictEqual(names(host), [])
      assert.strictEqual(host.state.checkpoints.size, 0)
      yield* host.put(running(appId))
      yield* host.until("it has left", () => host.report()?.checkpoints.length === 0)
    })
  )

  it.effect("that is not named any more is kept, and is the same when it is named again", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      yield* host.put(withCheckpoints(rawCheckpoint()))
      yield* untilCheckpoint(host, "ready")
      yield* host.put(running(appId))
      yield* host.until("it has left", () => host.report()?.checkpoints.length === 0)
      assert.deepStrictEqual(names(host), ["c-1"])
      yield* host.put(withCheckpoints(rawCheckpoint()))
      yield* untilCheckpoint(host, "ready")
      assert.strictEqual(host.volumes.script.count("createCheckpoint"), 1)
    })
  )

  it.effect("of a volume that the document does not name fails by itself, unless it is there already", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      yield* host.put(
        withCheckpoints(rawCheckpoint(), rawCheckpoint({ checkpointId: "c-2", volumeId: "gone" }))
      )
      yield* untilCheckpoint(host, "ready")
      yield* untilCheckpoint(host, "failed", "c-2")
      assert.include(checkpointOf(host, "c-2")?.message, "names no volume gone")
      yield* host.put(rawDocument({ checkpoints: [rawCheckpoint()] }))
      yield* TestClock.adjust("1 minute")
      assert.strictEqual(checkpointOf(host)?.state, "ready")
    })
  )

  it.effect("waits for its volume to be made", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const making = host.volumes.script.stall("provision")
      yield* host.start()
      yield* host.put(withCheckpoints(rawCheckpoint()))
      yield* host.until("it waits", () => checkpointOf(host)?.message?.includes(volumeId) === true)
      assert.strictEqual(checkpointOf(host)?.state, "pending")
      yield* making.release
      yield* untilCheckpoint(host, "ready")
    })
  )

  it.effect("that fails says why and when it is tried again, and comes to be", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      host.volumes.script.fail(
        "createCheckpoint",
        new CheckpointError({ checkpoint: "c-1", operation: "created", reason: "ZeroFS is away" }),
        { times: 2 }
      )
      yield* host.put(withCheckpoints(rawCheckpoint()))
      yield* untilCheckpoint(host, "failed")
      assert.match(checkpointOf(host)?.message ?? "", /ZeroFS is away; tried again at \d{4}-/u)
      yield* untilCheckpoint(host, "ready")
      assert.strictEqual(host.volumes.script.count("createCheckpoint"), 3)
    })
  )

  it.effect("that a daemon had cut when it died is taken as it is by the next", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      const stall = host.volumes.script.stall("createCheckpoint", { at: "after" })
      yield* host.put(withCheckpoints(rawCheckpoint()))
      yield* stall.reached
      yield* host.crash()
      host.volumes.script.clear()
      assert.strictEqual(host.state.checkpoints.get("c-1" as CheckpointId)?.state, "creating")
      yield* host.start()
      yield* untilCheckpoint(host, "ready")
      assert.strictEqual(host.volumes.script.count("createCheckpoint"), 1)
    })
  )

  it.effect("that the store has lost is not cut anew: it would be another", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      yield* host.put(withCheckpoints(rawCheckpoint()))
      yield* untilCheckpoint(host, "ready")
      yield* host.stop()
      host.volumes.checkpoints.clear()
      yield* host.start()
      yield* untilCheckpoint(host, "failed")
      assert.include(checkpointOf(host)?.message, "has it no more")
      assert.strictEqual(host.volumes.script.count("createCheckpoint"), 1)
    })
  )

  it.effect("may not be called as those of exports are", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      yield* host.put(withCheckpoints(rawCheckpoint({ checkpointId: "export-e-1" })))
      yield* untilCheckpoint(host, "failed", "export-e-1")
      assert.strictEqual(host.volumes.script.count("createCheckpoint"), 0)
    })
  )
})

describe("an export", () => {
  it.effect("freezes the guest for the cut alone, writes the bundle, and leaves nothing but it", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      const cutting = host.volumes.script.stall("createCheckpoint")
      const reading = host.bundles.script.stall("read")
      yield* host.put(withExports(rawExport({ environment: { A: "it's" } })))
      yield* cutting.reached
      assert.isTrue(isFrozen(host))
      yield* cutting.release
      yield* reading.reached
      assert.isFalse(isFrozen(host), "the guest goes on while the bundle is read")
      assert.deepStrictEqual(names(host), ["export-e-1"])
      yield* untilExport(host, "preparing")
      assert.strictEqual(host.exported.objects.size, 0)
      yield* reading.release
      yield* untilExport(host, "ready")
      const [asked] = host.bundles.opened
      assert.strictEqual(asked?.environment, `A="it's"\n`)
      const bundle = asked === undefined ? "" : memoryBundle(asked)
      assert.strictEqual(new TextDecoder().decode(host.exported.objects.get("exports/app-1.tar.gz")), bundle)
      assert.strictEqual(exportOf(host)?.sizeBytes, bundle.length)
      assert.isString(exportOf(host)?.readyAt)
      assert.deepStrictEqual(names(host), [])
      assert.deepStrictEqual(host.volumes.opened, [])
      assert.strictEqual(host.bundles.reading, 0)
    })
  )

  it.effect("is written once: not by the next daemon, and not under another key", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      yield* host.put(withExports(rawExport()))
      yield* untilExport(host, "ready")
      const before = exportOf(host)
      yield* host.stop()
      yield* host.start()
      yield* host.put(withExports(rawExport({ objectKey: "other" })))
      yield* TestClock.adjust("10 minutes")
      assert.deepStrictEqual(exportOf(host), before)
      assert.strictEqual(host.exported.script.count("put"), 1)
    })
  )

  it.effect("that is absent, or not named any more, is forgotten; named again it is written again", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      for (const [count, parts] of [{ exports: [rawExport({ desiredState: "absent" })] }, {}].entries()) {
        yield* host.put(withExports(rawExport()))
        yield* untilExport(host, "ready")
        assert.strictEqual(host.exported.script.count("put"), count + 1)
        yield* host.put({ ...running(appId), ...parts })
        yield* host.until("it is forgotten", () => host.state.exports.size === 0)
        yield* host.until("it has left", () => host.report()?.exports.length === 0)
      }
      assert.strictEqual(host.exported.objects.size, 1, "what was written stays")
    })
  )

  it.effect("of an app that is stopped takes the volume as it lies", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      yield* host.start()
      yield* host.put({ ...stopped(appId), exports: [rawExport()] })
      yield* untilExport(host, "ready")
      assert.strictEqual(host.machine.callsOf("freeze-volume").length, 0)
    })
  )

  it.effect("of an app that comes up while it is cut is cut again", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      const cutting = host.volumes.script.stall("createCheckpoint", { times: 1 })
      yield* host.put({ ...stopped(appId), exports: [rawExport()] })
      yield* cutting.reached
      yield* host.put(withExports(rawExport()))
      yield* host.untilState(appId, "running")
      yield* cutting.release
      yield* untilExport(host, "ready")
      assert.strictEqual(host.volumes.script.count("createCheckpoint"), 2)
      assert.strictEqual(host.machine.callsOf("freeze-volume").length, 1)
    })
  )

  it.effect("waits for an app that is just coming up, and says so", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const release = yield* Deferred.make<void>()
      host.machine.next("booted", appId, { stallUntil: release })
      yield* host.start()
      yield* host.put(withExports(rawExport()))
      yield* host.until("it waits", () => exportOf(host)?.message?.includes("coming up") === true)
      assert.strictEqual(exportOf(host)?.state, "pending")
      yield* Deferred.succeed(release, undefined)
      yield* untilExport(host, "ready")
    })
  )

  it.effect("says what it left out", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      host.bundles.leftOut.sockets = 1
      host.bundles.leftOut.fifos = 2
      yield* host.put(withExports(rawExport()))
      yield* untilExport(host, "ready")
      assert.strictEqual(exportOf(host)?.message, "left out: 1 socket, 2 FIFOs")
    })
  )

  it.effect("without a store for it is refused before anything is frozen", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp({ settings: { hasExportStore: false } })
      yield* host.put(withExports(rawExport()))
      yield* untilExport(host, "failed")
      assert.include(exportOf(host)?.message, "[exports]")
      yield* TestClock.adjust("10 minutes")
      assert.strictEqual(host.machine.callsOf("freeze-volume").length, 0)
      assert.deepStrictEqual(names(host), [])
    })
  )

  it.effect("of a volume that the document does not name fails by itself, and the others do not", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      yield* host.put(withExports(rawExport({ exportId: "e-2", volumeId: "gone" }), rawExport()))
      yield* untilExport(host, "ready")
      assert.strictEqual(exportOf(host, "e-2")?.state, "failed")
      assert.include(exportOf(host, "e-2")?.message, "names no volume gone")
    })
  )

  const failures: ReadonlyArray<readonly [string, string, (host: Host) => void]> = [
    [
      "the volume cannot be flushed",
      "no answer",
      (host) =>
        host.volumes.script.fail(
          "flush",
          new VolumeError({ volumeId, operation: "flushed", reason: "no answer" }),
          { times: 1 }
        )
    ],
    [
      "the guest does not freeze",
      "not now",
      (host) => host.machine.next("freeze-volume", appId, { fail: "not now" })
    ],
    [
      "the checkpoint cannot be cut",
      "no room",
      (host) =>
        host.volumes.script.fail("createCheckpoint", checkpointError("created", "no room"), { times: 1 })
    ],
    [
      "the checkpoint is there but nobody heard of it",
      "the answer was lost",
      (host) =>
        host.volumes.script.fail("createCheckpoint", checkpointError("created", "the answer was lost"), {
          times: 1,
          at: "after"
        })
    ],
    [
      "the checkpoint cannot be opened",
      "it is not served",
      (host) =>
        host.volumes.script.fail("openCheckpoint", checkpointError("opened", "it is not served"), {
          times: 1
        })
    ],
    [
      "its filesystem is damaged",
      "it is damaged",
      (host) => host.bundles.script.fail("open", new BundleError({ reason: "it is damaged" }), { times: 1 })
    ],
    [
      "the bundle breaks off",
      "it broke off",
      (host) => host.bundles.script.fail("read", new BundleError({ reason: "it broke off" }), { times: 1 })
    ],
    [
      "the store takes it not",
      "it is away",
      (host) =>
        host.exported.script.fail(
          "write",
          new StoreUnavailable({
            objectKey: "exports/app-1.tar.gz",
            operation: "stored",
            kind: "unreachable",
            endpoint: "s3.example.com",
            reason: "it is away"
          }),
          { times: 1 }
        )
    ],
    [
      "the notes cannot be written",
      "disk full",
      (host) =>
        host.state.script.fail(
          "saveExport",
          new HostStateError({ operation: "save", cause: new Error("disk full") }),
          { times: 1 }
        )
    ]
  ]
  for (const [what, reason, lay] of failures) {
    it.effect(`fails when ${what}: the guest is thawed, no checkpoint is left, and it is tried again`, () =>
      Effect.gen(function* () {
        const host = yield* hostWithApp()
        lay(host)
        yield* host.put(withExports(rawExport()))
        yield* untilExport(host, "failed")
        assert.match(exportOf(host)?.message ?? "", new RegExp(`${reason}.*; tried again at \\d{4}-`, "u"))
        assert.isFalse(isFrozen(host))
        assert.deepStrictEqual(names(host), [])
        assert.deepStrictEqual(host.volumes.opened, [])
        yield* untilExport(host, "ready")
        assert.isFalse(isFrozen(host))
        assert.deepStrictEqual(names(host), [])
        assert.strictEqual(host.instanceOf(appId)?.state, "running")
      })
    )
  }

  it.effect("fails when the guest let go of its volume before the cut was done", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      const cutting = host.volumes.script.stall("createCheckpoint", { times: 1 })
      yield* host.put(withExports(rawExport()))
      yield* cutting.reached
      const machine = host.machine.machineOf(appId)
      if (machine !== undefined) machine.volumeFrozen = undefined
      yield* cutting.release
      yield* untilExport(host, "failed")
      assert.include(exportOf(host)?.message, "let go of it too early")
      assert.deepStrictEqual(names(host), [])
      yield* untilExport(host, "ready")
    })
  )

  it.effect("gives a cut up that takes longer than a guest may stand still", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      host.volumes.script.stall("createCheckpoint", { times: 1 })
      yield* host.put(withExports(rawExport()))
      yield* untilExport(host, "failed")
      assert.include(exportOf(host)?.message, "took longer than 50 s")
      assert.isFalse(isFrozen(host))
      yield* untilExport(host, "ready")
    })
  )

  it.effect("is tried again at growing distances, of five minutes at most", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      host.bundles.script.fail("open", new BundleError({ reason: "it is damaged" }))
      yield* host.put(withExports(rawExport()))
      yield* untilExport(host, "failed")
      yield* TestClock.adjust("60 seconds")
      const within = host.bundles.script.count("open")
      assert.isAtLeast(within, 4)
      assert.isAtMost(within, 7)
      yield* TestClock.adjust("1 hour")
      assert.isAtLeast(host.bundles.script.count("open"), within + 11)
      assert.isAtMost(host.bundles.script.count("open"), within + 17)
    })
  )

  const stalls: ReadonlyArray<readonly [string, (host: Host) => Stall]> = [
    ["it is cut", (host) => host.volumes.script.stall("createCheckpoint", { times: 1, at: "after" })],
    ["it is read", (host) => host.bundles.script.stall("read", { times: 1 })]
  ]
  for (const [at, lay] of stalls) {
    it.effect(`that is withdrawn while ${at} leaves a thawed guest and no checkpoint`, () =>
      Effect.gen(function* () {
        const host = yield* hostWithApp()
        const stall = lay(host)
        yield* host.put(withExports(rawExport()))
        yield* stall.reached
        yield* host.put(running(appId))
        yield* host.until("nothing is left", () => names(host).length === 0 && !isFrozen(host))
        yield* host.until("it has left", () => host.report()?.exports.length === 0)
        assert.deepStrictEqual(host.volumes.opened, [])
        assert.strictEqual(host.exported.objects.size, 0)
      })
    )

    it.effect(`that is under way when the daemon ends in order while ${at} leaves neither`, () =>
      Effect.gen(function* () {
        const host = yield* hostWithApp()
        const stall = lay(host)
        yield* host.put(withExports(rawExport()))
        yield* stall.reached
        yield* host.stop()
        assert.isFalse(isFrozen(host))
        assert.deepStrictEqual(names(host), [])
        yield* host.start()
        yield* untilExport(host, "ready")
      })
    )

    it.effect(`whose daemon dies while ${at} is begun anew by the next, which thaws the guest`, () =>
      Effect.gen(function* () {
        const host = yield* hostWithApp()
        const stall = lay(host)
        yield* host.put(withExports(rawExport()))
        yield* stall.reached
        const gone = checkpointError("deleted", "it is dead")
        host.volumes.script.fail("deleteCheckpoint", gone)
        host.machine.always("thaw-volume", appId, { fail: "it is dead" })
        yield* host.crash()
        assert.deepStrictEqual(names(host), ["export-e-1"])
        assert.strictEqual(isFrozen(host), at === "it is cut")
        host.volumes.script.clear()
        host.machine.always("thaw-volume", appId, undefined)
        yield* host.start()
        yield* untilExport(host, "ready")
        assert.isFalse(isFrozen(host))
        assert.deepStrictEqual(names(host), [])
      })
    )
  }

  it.effect("whose checkpoint cannot be deleted is ready, and the checkpoint goes as soon as it can", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      const writing = host.exported.script.stall("write")
      yield* host.put(withExports(rawExport()))
      yield* writing.reached
      const away = checkpointError("deleted", "it is away")
      host.volumes.script.fail("deleteCheckpoint", away, { times: 2 })
      yield* writing.release
      yield* untilExport(host, "ready")
      assert.deepStrictEqual(names(host), ["export-e-1"])
      yield* host.until("it is gone", () => names(host).length === 0)
    })
  )

  it.effect(
    "that a daemon left a checkpoint of, and nobody asks for any more, has it deleted at the next start",
    () =>
      Effect.gen(function* () {
        const host = yield* hostWithApp()
        yield* host.put(withCheckpoints(rawCheckpoint()))
        yield* untilCheckpoint(host, "ready")
        yield* host.stop()
        const [kept] = host.volumes.checkpoints.values()
        if (kept !== undefined) host.volumes.checkpoints.set("export-old", { ...kept, name: "export-old" })
        yield* host.start()
        yield* host.until("it is gone", () => !host.volumes.checkpoints.has("export-old"))
        assert.deepStrictEqual(names(host), ["c-1"])
      })
  )

  it.effect("waits for another one to be written, and the app that it is of does not", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.run("app-1", "app-2")
      const writing = host.exported.script.stall("write", { subject: "first" })
      const both = running("app-1", "app-2")
      const first = rawExport({ objectKey: "first" })
      const second = rawExport({
        exportId: "e-2",
        appId: "app-2",
        volumeId: volumeOf("app-2"),
        objectKey: "second"
      })
      yield* host.put({ ...both, exports: [first] })
      yield* writing.reached
      yield* host.put({ ...both, exports: [first, second] })
      yield* untilExport(host, "pending", "e-2")
      assert.include(exportOf(host, "e-2")?.message, "one export is written at a time")
      const deployed = rawInstance("app-2", { deploymentId: "dep-2" })
      yield* host.put({ ...documentOf(rawInstance("app-1"), deployed), exports: [first, second] })
      yield* host.untilDeployed("app-2", "dep-2")
      yield* writing.release
      yield* untilExport(host, "ready")
      yield* untilExport(host, "ready", "e-2")
      assert.deepStrictEqual([...host.exported.objects.keys()].sort(), ["first", "second"])
    })
  )

  it.effect("tells no value of its environment to anybody but the bundle", () =>
    Effect.gen(function* () {
      const host = yield* hostWithApp()
      host.bundles.script.fail("read", new BundleError({ reason: "it broke off" }), { times: 1 })
      yield* host.put(withExports(rawExport({ environment: { KEY: "s3cr3t" } })))
      yield* untilExport(host, "failed")
      yield* untilExport(host, "ready")
      assert.notInclude(JSON.stringify(host.reporter.reports), "s3cr3t")
      assert.notInclude(JSON.stringify([...host.state.exports.values()]), "s3cr3t")
      assert.isTrue(host.state.exports.has("e-1" as ExportId))
    })
  )
})
