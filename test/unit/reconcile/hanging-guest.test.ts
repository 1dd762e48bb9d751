/** Guests that stop on their way up, as an emulated one may on a host that is very busy. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { running, stopped } from "./documents.ts"
import { type Host, makeHost } from "./harness.ts"

describe("a guest that takes its boot spec and never starts its program", () => {
  const hanging = Effect.fnUntraced(function* () {
    const host = yield* makeHost()
    host.machine.script("app-1", { life: [] })
    yield* host.start()
    yield* host.put(running("app-1"))
    yield* host.untilState("app-1", "starting")
    yield* host.until("it has its boot spec", () => host.machine.callsOf("hand-over").length === 1)
    return host
  })
  const boots = (host: Host) => host.machine.callsOf("boot").length

  it.effect("is ended and booted anew within the same start", () =>
    Effect.gen(function* () {
      const host = yield* hanging()
      yield* TestClock.adjust(110_000)
      assert.strictEqual(boots(host), 1)
      assert.strictEqual(host.instanceOf("app-1")?.state, "starting")
      host.machine.script("app-1", {})
      yield* host.untilState("app-1", "running")
      assert.strictEqual(boots(host), 2)
      assert.strictEqual(host.machine.machines.length, 1)
      assert.strictEqual(host.state.apps.get("app-1" as never)?.attempts, 1)
      assert.isUndefined(host.instanceOf("app-1")?.message)
    })
  )

  it.effect("fails its start with a sentence after three boots, and is started again under its policy", () =>
    Effect.gen(function* () {
      const host = yield* hanging()
      yield* host.until("the start has failed", () => host.instanceOf("app-1")?.state === "failed", 400_000)
      assert.strictEqual(boots(host), 3)
      assert.match(
        host.instanceOf("app-1")?.message ?? "",
        /start its program: it took its boot spec and said nothing in 120000 ms/u
      )
      assert.deepStrictEqual(host.machine.machines, [])
      assert.notProperty(host.instanceOf("app-1"), "startedAt")
      host.machine.script("app-1", {})
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.state.apps.get("app-1" as never)?.attempts, 2)
    })
  )

  it.effect("is waited for while its volume cannot be used", () =>
    Effect.gen(function* () {
      const host = yield* hanging()
      const machine = host.machine.machineOf("app-1")
      if (machine !== undefined) machine.waitsForVolume = true
      yield* TestClock.adjust(900_000)
      assert.strictEqual(boots(host), 1)
      if (machine !== undefined) machine.waitsForVolume = false
      yield* host.machine.say("app-1", { kind: "started" })
      host.machine.listen("app-1", true)
      yield* host.untilState("app-1", "running")
      assert.strictEqual(boots(host), 1)
    })
  )

  it.effect("is ended when the document asks to stop, and leaves nothing", () =>
    Effect.gen(function* () {
      const host = yield* hanging()
      yield* host.put(stopped("app-1"))
      yield* host.untilState("app-1", "stopped")
      assert.deepStrictEqual(host.machine.machines, [])
      const report = host.report()
      assert.strictEqual(report?.allocatable.memoryMib, report?.capacity.memoryMib)
    })
  )

  it.effect("is ended by the next daemon when its own has died", () =>
    Effect.gen(function* () {
      const host = yield* hanging()
      yield* host.crash()
      host.machine.script("app-1", {})
      yield* host.start()
      yield* host.until("it is booted anew", () => boots(host) === 2, 200_000)
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.machine.machines.length, 1)
    })
  )

  it.effect("or never says hello, is ended by the next daemon when its own has died", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.machine.script("app-1", { helloAfterMs: "never" })
      yield* host.start()
      yield* host.put(running("app-1"))
      yield* host.until("it is greeted", () => host.machine.callsOf("connect").length === 1)
      yield* host.crash()
      host.machine.script("app-1", {})
      yield* host.start()
      yield* host.untilState("app-1", "running")
      assert.strictEqual(boots(host), 2)
      assert.strictEqual(host.machine.machines.length, 1)
    })
  )
})
