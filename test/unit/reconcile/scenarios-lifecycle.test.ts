import { assert, describe, it } from "@effect/vitest"
import { Effect, SubscriptionRef } from "effect"
import { TestClock } from "effect/testing"
import { putObject } from "../../../layers/testing/ArtifactStore.ts"
import { AppId } from "../../../src/document/schema.ts"
import {
  digest,
  documentOf,
  type InstanceChanges,
  rawDocument,
  rawInstance,
  rawVolume,
  running,
  volumeOf
} from "./documents.ts"
import { hostRunning, makeHost, startHost } from "./harness.ts"

const one = (changes: InstanceChanges = {}) => documentOf(rawInstance("app-1", changes))

describe("a new deployment of an app that runs", () => {
  it.effect("has its own layers and nothing of the last one's, on the volume that there was", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const layer = (letter: string) => [{ kind: "filesystem", digest: digest(letter), objectKey: letter }]
      yield* host.start()
      yield* host.put(one({ layers: layer("a") }))
      yield* host.untilDeployed("app-1", "dep-1")
      const before = host.machine.machineOf("app-1")
      yield* host.put(one({ deploymentId: "dep-2", layers: layer("b") }))
      yield* host.untilDeployed("app-1", "dep-2")
      const after = host.machine.machineOf("app-1")
      assert.deepStrictEqual(host.instanceOf("app-1")?.layerDigests, [digest("b")])
      assert.notStrictEqual(after?.record.machineId, before?.record.machineId)
      assert.deepStrictEqual(after?.spec.volume, before?.spec.volume)
      assert.strictEqual(host.volumes.formattings, 1)
    })
  )

  it.effect("goes on with its log", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const said = (text: string) =>
        host.machine.say("app-1", {
          kind: "output",
          stream: "stdout",
          bytes: new TextEncoder().encode(text)
        } as never)
      yield* host.start()
      yield* host.put(one())
      yield* host.untilDeployed("app-1", "dep-1")
      yield* said("of the first\n")
      const log = () => (host.logs.records.get("app-1" as never) ?? []).join("")
      yield* host.until("it is logged", () => log().includes("of the first"))
      yield* host.put(one({ deploymentId: "dep-2" }))
      yield* host.untilDeployed("app-1", "dep-2")
      yield* said("of the second\n")
      yield* host.until("it is logged too", () => log().includes("of the second"))
      assert.include(log(), "of the first")
    })
  )

  it.effect("starts again when the last one's restarts are used up", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.machine.script("app-1", { life: [{ afterMs: 500, exit: { kind: "exited", code: 1 } }] })
      yield* host.start()
      yield* host.put(one())
      yield* host.until("all restarts are used up", () =>
        /All 3 restarts are used up after 4 starts/u.test(host.instanceOf("app-1")?.message ?? "")
      )
      const boots = host.machine.callsOf("boot", "app-1").length
      yield* TestClock.adjust("10 minutes")
      assert.strictEqual(host.machine.callsOf("boot", "app-1").length, boots)
      host.machine.script("app-1", {})
      yield* host.put(one({ deploymentId: "dep-2" }))
      yield* host.untilDeployed("app-1", "dep-2")
      assert.isUndefined(host.instanceOf("app-1")?.message)
    })
  )
})

describe("a microVM that ends by itself", () => {
  it.effect("is no restart of the program: the count stays 0, and the exit is told", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(one())
      yield* host.untilDeployed("app-1", "dep-1")
      yield* host.machine.end("app-1", { kind: "killed", signal: "SIGKILL" })
      yield* host.until("it was booted again", () => host.machine.callsOf("boot", "app-1").length === 2)
      yield* host.untilDeployed("app-1", "dep-1")
      assert.strictEqual(host.instanceOf("app-1")?.restartCount, 0)
      assert.notProperty(host.instanceOf("app-1") ?? {}, "lastExitCode")
      assert.strictEqual(host.volumes.formattings, 1)
    })
  )

  it.effect("while its program died by a signal, told as that", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(one())
      yield* host.untilDeployed("app-1", "dep-1")
      yield* host.machine.say("app-1", {
        kind: "restarting",
        attempt: 2,
        budget: 3,
        total: 2,
        exit: { signal: 9 },
        backoffMs: 2000,
        reason: "the guest's memory was used up"
      })
      yield* host.until("the restart is told", () => host.instanceOf("app-1")?.restartCount === 2)
      assert.deepInclude(host.instanceOf("app-1")?.lastRestart, {
        attempt: 2,
        budget: 3,
        exit: { signal: 9 },
        backoffMs: 2000,
        reason: "the guest's memory was used up"
      })
    })
  )
})

describe("the slot of an app that has gone", () => {
  it.effect(
    "is the next app's with nothing of the last one: its volume, log, hostname and microVM are its own",
    () =>
      Effect.gen(function* () {
        const host = yield* startHost({ settings: { maxApps: 1 } })
        yield* host.put(one())
        yield* host.untilDeployed("app-1", "dep-1")
        const port = host.instanceOf("app-1")?.hostPort
        const old = host.machine.machineOf("app-1")?.record.machineId
        yield* host.put(rawDocument({ volumes: [rawVolume("app-1", { desiredState: "absent" })] }))
        yield* host.until("the volume is deleted", () => host.report()?.volumes[0]?.state === "deleted")
        yield* host.run("app-2")
        assert.strictEqual(host.instanceOf("app-2")?.hostPort, port)
        const machine = host.machine.machineOf("app-2")
        assert.notStrictEqual(machine?.record.machineId, old)
        assert.include(JSON.stringify(machine?.spec.volume), volumeOf("app-2"))
        assert.deepStrictEqual([...host.volumes.volumes.keys()] as Array<string>, [volumeOf("app-2")])
        assert.isFalse(host.routes.has("app-1"))
        assert.isFalse(host.logs.records.has("app-1" as never))
        assert.isUndefined(host.machine.machineOf("app-1"))
      })
  )

  it.effect("is another's only after max_apps was raised: who found none is placed by the next daemon", () =>
    Effect.gen(function* () {
      const settings = { maxApps: 1 }
      const host = yield* startHost({ settings })
      yield* host.put(running("app-1", "app-2"))
      yield* host.untilState("app-1", "running")
      yield* host.untilState("app-2", "failed")
      assert.include(host.instanceOf("app-2")?.message, "max_apps")
      const port = host.instanceOf("app-1")?.hostPort
      yield* host.stop()
      settings.maxApps = 2
      yield* host.start()
      yield* host.untilState("app-2", "running")
      assert.strictEqual(host.instanceOf("app-1")?.hostPort, port)
      assert.strictEqual(host.machine.callsOf("boot", "app-1").length, 1)
    })
  )
})

describe("a start under max_concurrent_vm_starts", () => {
  it.effect("that comes to nothing in its time gives its permit to the next", () =>
    Effect.gen(function* () {
      const host = yield* makeHost({ settings: { maxConcurrentVmStarts: 1, guestHelloTimeoutMs: 60_000 } })
      host.machine.script("app-1", { helloAfterMs: "never" })
      yield* host.start()
      yield* host.put(running("app-1", "app-2"))
      yield* host.machine.awaitCall("boot", "app-1")
      yield* host.until("the other waits", () =>
        /max_concurrent_vm_starts/u.test(host.instanceOf("app-2")?.message ?? "")
      )
      assert.strictEqual(host.instanceOf("app-2")?.state, "pending")
      // A guest that is silent may be one that never began: its microVM is started a second time.
      yield* host.until("app-2 runs", () => host.instanceOf("app-2")?.state === "running", 300_000)
      yield* host.until("the first is told as failed", () =>
        /say hello|first word|60/u.test(host.instanceOf("app-1")?.message ?? "")
      )
      assert.strictEqual(host.state.apps.get("app-2" as never)?.attempts, 1)
    })
  )
})

describe("volumes that cannot be reached for a while", () => {
  it.effect("are told by every app that is up, and untold when they can be reached again", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("a", "b")
      yield* SubscriptionRef.set(host.volumes.trouble, "ZeroFS does not answer")
      const says = (appId: string) => host.instanceOf(appId)?.message
      yield* host.until("both say so", () =>
        ["a", "b"].every((appId) => says(appId)?.includes("ZeroFS does not answer") === true)
      )
      assert.strictEqual(host.instanceOf("a")?.state, "running")
      yield* SubscriptionRef.set(host.volumes.trouble, undefined)
      yield* host.until("neither does", () => ["a", "b"].every((appId) => says(appId) === undefined))
    })
  )
})

describe("a port of an app that another program has", () => {
  it.effect("is told by that app alone, which serves its hostnames, and untold when it can be had", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("a", "b")
      const says = (appId: string) => host.instanceOf(appId)?.message
      const refused = (...entries: ReadonlyArray<readonly [AppId, ReadonlyArray<string>]>) =>
        SubscriptionRef.set(host.proxy.refusedPorts, new Map(entries))
      const a = AppId.make("a")
      yield* refused([a, ["its port db cannot be reached: TCP", "its port db cannot be reached: UDP"]])
      yield* host.until("it says so", () => says("a") !== undefined)
      assert.strictEqual(
        says("a"),
        "its port db cannot be reached: TCP; its port db cannot be reached: UDP; tried again every few seconds"
      )
      assert.deepStrictEqual([host.instanceOf("a")?.state, says("b")], ["running", undefined])
      assert.strictEqual(host.routes.get("a")?.target.kind, "up")
      yield* refused([a, ["its port db cannot be reached: UDP"]])
      yield* host.until("it says what is left", () => says("a")?.includes("TCP") === false)
      yield* refused()
      yield* host.until("it says nothing", () => says("a") === undefined)
    })
  )
})

describe("a volume that starts with contents", () => {
  it.effect("has its archive fetched once, as it is made, and never looked at again", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const object = putObject(host.artifacts, "seeds/a", "an archive")
      const contents = (destinationPath: string) =>
        rawDocument({
          volumes: [rawVolume("a", { initialContents: { ...object, destinationPath } })],
          instances: [rawInstance("a")]
        })
      yield* host.start()
      yield* host.put(contents("/app/data"))
      yield* host.untilState("a", "running")
      assert.strictEqual(host.artifacts.script.count("fetch"), 1)
      yield* host.put(contents("/elsewhere"))
      yield* TestClock.adjust(60_000)
      assert.strictEqual(host.artifacts.script.count("fetch"), 1)
    })
  )

  it.effect("says how far its archive has come, and no more once it is here", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const object = putObject(host.artifacts, "seeds/a", new Uint8Array(4 * 2 ** 20))
      const stall = host.artifacts.script.stall("read")
      yield* host.start()
      yield* host.put(
        rawDocument({
          volumes: [rawVolume("a", { initialContents: { ...object, destinationPath: "/app/data" } })],
          instances: [rawInstance("a")]
        })
      )
      const message = () => host.report()?.volumes[0]?.message
      yield* host.until("it is told", () => message() === 'fetching "seeds/a": 2 of 4 MiB')
      assert.strictEqual(host.report()?.volumes[0]?.state, "pending")
      yield* stall.release
      yield* host.untilState("a", "running")
      assert.isUndefined(message())
    })
  )

  it.effect("fails by name when its archive is not what the document says, and the app with it", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const { objectKey } = putObject(host.artifacts, "seeds/a", "an archive")
      const initialContents = { objectKey, digest: "0".repeat(64), destinationPath: "/app/data" }
      yield* host.start()
      yield* host.put(
        rawDocument({ volumes: [rawVolume("a", { initialContents })], instances: [rawInstance("a")] })
      )
      yield* host.untilState("a", "failed")
      assert.match(host.instanceOf("a")?.message ?? "", /seeds\/a.*sha-256/u)
      assert.strictEqual(host.report()?.volumes[0]?.state, "failed")
    })
  )
})
