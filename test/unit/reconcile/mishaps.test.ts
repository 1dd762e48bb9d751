/** Mishaps that come together: a document in the middle of an end, a failure of a failure, a clock that is wrong. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { Routes } from "../../../layers/proxy/http/routes.ts"
import type { AppRoute } from "../../../src/services/Proxy.ts"
import { volumeFile } from "../../support/volume-file.ts"
import { documentOf, rawDocument, rawInstance, rawVolume, running, volumeOf } from "./documents.ts"
import { hostRunning, makeHost, startHost } from "./harness.ts"

/** The real table of routes after what the reconciler has told the proxy. */
const table = (
  log: ReadonlyArray<{ readonly appId: AppRoute["appId"]; readonly route: AppRoute | undefined }>
) => {
  const unused = () => {
    throw new Error("no request is made here")
  }
  const pool = { retire: () => {} } as unknown as ReturnType<
    ConstructorParameters<typeof Routes>[0]["openPool"]
  >
  const routes = new Routes({
    openPool: () => pool,
    runWake: unused,
    onDefect: unused,
    timeouts: { settle: 0, settleRetry: 0 }
  })
  for (const { appId, route } of log) {
    if (route === undefined) routes.remove(appId)
    else routes.set(route)
  }
  return routes
}

const named = (appId: string, hostname: string) =>
  rawInstance(appId, { hostnames: [{ hostname, kind: "custom" }] })

describe("a host under which things go wrong", () => {
  it.effect("a hostname that moves away from an app whose microVM has just ended is the new app's", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      yield* host.start()
      yield* host.put(documentOf(named("a", "h.example.com"), named("b", "b.example.com")))
      yield* host.untilRunning("a", "b")
      host.machine.next("kill", "a", { delayMs: 100 })
      yield* host.machine.end("a", { kind: "exited", code: 1 })
      yield* TestClock.adjust(20)
      yield* host.put(documentOf(named("a", "a.example.com"), named("b", "h.example.com")))
      yield* TestClock.adjust(120_000)
      const routes = table(host.routeLog)
      assert.strictEqual(routes.find("h.example.com")?.appId, "b")
    })
  )

  it.effect("a microVM that cannot be ended is not forgotten: it is ended by a later try", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.machine.script("a", { shutdownAfterMs: "never" })
      yield* host.start()
      yield* host.run("a")
      host.machine.next("kill", "a", { fail: "process 1 is still there 20000 ms after SIGKILL" })
      yield* host.put(rawDocument())
      yield* TestClock.adjust(300_000)
      assert.deepStrictEqual(
        host.machine.machines.map((m) => m.record.appId),
        []
      )
    })
  )

  it.effect("memory is given back although a link cannot be taken down at once", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("a")
      host.machine.next("detach", "slot 0", { fail: "boo" })
      yield* host.put(rawDocument())
      yield* TestClock.adjust(300_000)
      const report = host.report()
      assert.strictEqual(report?.allocatable.memoryMib, report?.capacity.memoryMib)
    })
  )

  it.effect("a start that waits for memory takes up a smaller demand of the same deployment", () =>
    Effect.gen(function* () {
      const host = yield* startHost({ machine: { memoryMib: 640 + 512 } })
      const b = (mib: number) => rawInstance("b", { config: { resources: { vcpuCount: 1, memoryMib: mib } } })
      yield* host.put(
        rawDocument({ volumes: [rawVolume("a"), rawVolume("b")], instances: [rawInstance("a")] })
      )
      yield* host.untilState("a", "running")
      yield* host.put(documentOf(rawInstance("a"), b(512)))
      yield* host.untilState("b", "pending")
      yield* TestClock.adjust(10_000)
      yield* host.put(documentOf(rawInstance("a"), b(128)))
      yield* TestClock.adjust(120_000)
      assert.strictEqual(host.instanceOf("b")?.state, "running", JSON.stringify(host.instanceOf("b")))
    })
  )

  it.effect("the volumes of an app that waits for memory are looked after all the same", () =>
    Effect.gen(function* () {
      const host = yield* startHost({ machine: { memoryMib: 640 + 256 } })
      const old = (state: string) => rawVolume("b", { volumeId: "b-old", desiredState: state })
      yield* host.put(
        rawDocument({
          volumes: [rawVolume("a"), rawVolume("b"), old("present")],
          instances: [rawInstance("a"), rawInstance("b")]
        })
      )
      yield* host.untilState("a", "running")
      yield* TestClock.adjust(10_000)
      yield* host.put(
        rawDocument({
          volumes: [rawVolume("a"), rawVolume("b"), old("absent")],
          instances: [rawInstance("a"), rawInstance("b")]
        })
      )
      yield* TestClock.adjust(120_000)
      assert.strictEqual([...host.volumes.volumes.keys()].includes("b-old" as never), false)
    })
  )

  it.effect(
    "a volume that the document gives to another app is in no two microVMs, and told to be another's",
    () =>
      Effect.gen(function* () {
        const host = yield* makeHost()
        host.machine.script("a", { shutdownAfterMs: 9000 })
        yield* host.start()
        yield* host.run("a")
        const moved = { volumeId: volumeOf("a") }
        yield* host.put(
          rawDocument({ volumes: [rawVolume("b", moved)], instances: [rawInstance("b", moved)] })
        )
        let both = false
        for (let i = 0; i < 200; i++) {
          yield* TestClock.adjust(50)
          if (
            host.machine.machines.filter((m) => volumeFile(m.spec.volume).endsWith(volumeOf("a"))).length > 1
          )
            both = true
        }
        assert.strictEqual(both, false, "two microVMs have the same volume")
        const told = host.report()?.volumes.find(({ appId }) => appId === "b")
        assert.strictEqual(told?.state, "failed")
        assert.match(told?.message ?? "", /belongs to app a/)
        assert.strictEqual(host.volumes.formattings, 1)
      })
  )

  it.effect("a clock that is set back holds no restart up", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      yield* TestClock.setTime(Date.UTC(2040, 0, 1))
      yield* host.start()
      yield* host.run("a")
      yield* host.machine.end("a", { kind: "exited", code: 1 })
      yield* TestClock.adjust(100)
      yield* host.crash()
      yield* TestClock.setTime(Date.UTC(2026, 0, 1))
      yield* host.start()
      for (let i = 0; i < 600; i++) yield* TestClock.adjust(1000)
      assert.strictEqual(host.machine.machines.length, 1, JSON.stringify(host.instanceOf("a")))
    })
  )

  it.effect("microVMs that end with their host cost no restarts", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("a")
      for (let i = 0; i < 5; i++) {
        yield* TestClock.adjust(3_600_000)
        yield* host.crash()
        yield* host.machine.end("a", { kind: "killed", signal: "SIGKILL" })
        yield* host.start()
        yield* TestClock.adjust(5000)
        yield* host.untilState("a", "running")
      }
      yield* host.machine.end("a", { kind: "exited", code: 1 })
      yield* TestClock.adjust(60_000)
      assert.strictEqual(host.instanceOf("a")?.state, "running", JSON.stringify(host.instanceOf("a")))
    })
  )

  it.effect("an app that will not start keeps no memory from those behind it, document after document", () =>
    Effect.gen(function* () {
      const host = yield* makeHost({ machine: { memoryMib: 640 + 600 } })
      host.machine.always("boot", "broken", { fail: "no such machine" })
      yield* host.start()
      yield* host.put(running("broken"))
      yield* host.until("its restarts are spent", () =>
        /used up/.test(host.instanceOf("broken")?.message ?? "")
      )
      yield* host.put(running("broken", "a"))
      yield* host.untilState("a", "running")
      yield* host.put(running("broken", "a", "b"))
      yield* host.untilState("b", "running")
    })
  )
})
