import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Exit, Fiber, Layer, Option, Queue } from "effect"
import { TestClock } from "effect/testing"
import { fakeMachineSpec, makeFakeHost } from "../../../layers/testing/FakeHost.ts"
import { layerGuest } from "../../../layers/testing/Guest.ts"
import { layerHealthProber } from "../../../layers/testing/HealthProber.ts"
import { layerHypervisor } from "../../../layers/testing/Hypervisor.ts"
import { layerNetwork } from "../../../layers/testing/Network.ts"
import { Guest } from "../../../src/services/Guest.ts"
import { HealthProber } from "../../../src/services/HealthProber.ts"
import { Hypervisor } from "../../../src/services/Hypervisor.ts"
import { Network } from "../../../src/services/Network.ts"
import { bootSpec } from "../../support/boot-spec.ts"

const WEB = fakeMachineSpec("web", 0, "00000000000000aa")
const bootWeb = Hypervisor.use((hypervisor) => hypervisor.boot(WEB))

/** A world and the services of one daemon over it. */
const world = Effect.gen(function* () {
  const host = yield* makeFakeHost
  const daemon = Layer.mergeAll(
    layerHypervisor(host),
    layerGuest(host),
    layerNetwork(host),
    layerHealthProber(host)
  )
  return [host, yield* Layer.build(daemon)] as const
})

const probeWeb = HealthProber.use((prober) =>
  prober.http({ host: "127.201.0.2", port: 3000, path: "/", timeoutMs: 1_000 })
)

describe("a host in memory", () => {
  it.effect("notes every step in order, with what it was told", () =>
    Effect.gen(function* () {
      const [host, daemon] = yield* world
      yield* Effect.gen(function* () {
        yield* Network.use((network) => network.attach(0, [3000]))
        const machine = yield* bootWeb
        const session = yield* Guest.use((guest) => guest.connect(machine, 1_000))
        yield* session.handOver(bootSpec())
        yield* session.probe(3000, 1_000)
        yield* session.shutdown(0)
      }).pipe(Effect.provide(daemon))
      assert.deepStrictEqual(
        host.calls.map(({ step, subject }) => `${step} ${subject}`),
        [
          "attach slot 0",
          "boot web",
          "booted web",
          "connect web",
          "hand-over web",
          "probe web",
          "shutdown web"
        ]
      )
      assert.deepStrictEqual(host.callsOf("hand-over", "web")[0]?.bootSpec, bootSpec())
      assert.deepStrictEqual(host.callsOf("attach")[0]?.ports, [3000])
    })
  )

  it.effect("fails, stalls, delays and interrupts a step as it is told, once each", () =>
    Effect.gen(function* () {
      const [host, daemon] = yield* world
      const release = yield* Deferred.make<void>()
      host.next(
        "boot",
        "web",
        { fail: "no luck" },
        { stallUntil: release },
        { delayMs: 500 },
        { interrupt: true }
      )
      const attempt = bootWeb.pipe(
        Effect.tap((machine) => Hypervisor.use((hypervisor) => hypervisor.kill(machine.record))),
        Effect.scoped,
        Effect.provide(daemon)
      )
      assert.include((yield* Effect.flip(attempt)).message, "no luck")

      const stalled = yield* Effect.forkChild(attempt, { startImmediately: true })
      yield* TestClock.adjust("1 hour")
      assert.isUndefined(stalled.pollUnsafe())
      yield* Deferred.succeed(release, undefined)
      yield* Fiber.join(stalled)

      const delayed = yield* Effect.forkChild(attempt, { startImmediately: true })
      yield* TestClock.adjust(499)
      assert.isUndefined(delayed.pollUnsafe())
      yield* TestClock.adjust(1)
      yield* Fiber.join(delayed)

      const interrupted = yield* Effect.exit(Effect.flatMap(Effect.forkChild(attempt), Fiber.join))
      assert.isTrue(Exit.isFailure(interrupted) && Cause.hasInterruptsOnly(interrupted.cause))
      yield* attempt
    })
  )

  it.effect("keeps a microVM whose boot a dying daemon could not undo", () =>
    Effect.gen(function* () {
      const [host, daemon] = yield* world
      host.next("booted", "web", { stallUntil: yield* Deferred.make<void>() })
      const booting = yield* Effect.forkChild(Effect.scoped(bootWeb).pipe(Effect.provide(daemon)), {
        startImmediately: true
      })
      yield* host.awaitCall("booted", "web")
      yield* host.crash
      yield* Fiber.interrupt(booting)
      assert.isDefined(host.machineOf("web"))

      const next = yield* Layer.build(layerHypervisor(host))
      const adopted = yield* Hypervisor.use((hypervisor) =>
        hypervisor.adopt({ machineId: WEB.machineId, appId: WEB.appId, slot: 0, guestImageVersion: "fake" })
      ).pipe(Effect.provide(next))
      assert.isTrue(Option.isSome(adopted))
    })
  )

  it.effect("lets a guest live by its script, in its own time", () =>
    Effect.gen(function* () {
      const [host, daemon] = yield* world
      host.script("web", {
        helloAfterMs: 1_000,
        life: [
          { afterMs: 2_000, say: { kind: "started" } },
          { afterMs: 3_000, listen: true }
        ]
      })
      yield* Effect.gen(function* () {
        const machine = yield* bootWeb
        const connecting = yield* Effect.forkChild(
          Guest.use((guest) => guest.connect(machine, 5_000)),
          { startImmediately: true }
        )
        yield* TestClock.adjust(999)
        assert.isUndefined(connecting.pollUnsafe())
        yield* TestClock.adjust(1)
        const session = yield* Fiber.join(connecting)
        yield* session.handOver(bootSpec())
        assert.strictEqual(host.machineOf("web")?.phase, "starting")
        yield* TestClock.adjust(2_000)
        assert.deepStrictEqual(yield* Queue.take(session.events), { kind: "started" })
        assert.strictEqual((yield* probeWeb).kind, "failed")
        yield* TestClock.adjust(3_000)
        assert.deepStrictEqual(yield* probeWeb, { kind: "answered", status: 200 })
        host.httpAnswer("web", { kind: "answered", status: 503 })
        assert.deepStrictEqual(yield* probeWeb, { kind: "answered", status: 503 })
        yield* host.end("web", { kind: "killed", signal: "SIGKILL" })
        assert.deepStrictEqual(yield* probeWeb, { kind: "refused" })
      }).pipe(Effect.provide(daemon))
    })
  )

  it.effect("ends a probe that stalls at the probe's own limit", () =>
    Effect.gen(function* () {
      const [host, daemon] = yield* world
      yield* Effect.gen(function* () {
        yield* bootWeb
        host.next("http", "web", { stallUntil: yield* Deferred.make<void>() })
        const probing = yield* Effect.forkChild(probeWeb, { startImmediately: true })
        yield* TestClock.adjust(1_000)
        assert.deepStrictEqual(yield* Fiber.join(probing), { kind: "timed-out", ms: 1_000 })
      }).pipe(Effect.provide(daemon))
    })
  )
})
