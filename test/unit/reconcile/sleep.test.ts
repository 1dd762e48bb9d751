/** Apps that sleep and wake, on the testing layers. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { openConnection, openRequest, request } from "../../../layers/testing/Proxy.ts"
import { ObjectMissing } from "../../../src/services/ArtifactStore.ts"
import { documentOf, type InstanceChanges, rawDocument, rawInstance, rawVolume } from "./documents.ts"
import { type Host, makeHost, startHost } from "./harness.ts"

const minute = 60_000
const at = { hostname: "app-1.example.com" }
const snapshotDir = "/memory/snapshots/app-1"

const onRequest = (extra: InstanceChanges = {}) =>
  rawInstance("app-1", {
    desiredState: "on-request",
    hostnames: [{ hostname: at.hostname, kind: "platform" }],
    activation: { sleepWhen: { kind: "traffic-idle", timeoutMs: minute } },
    ...extra
  })

/** A host with one app that is up. */
const awake = Effect.fnUntraced(function* (extra: InstanceChanges = {}) {
  const host = yield* startHost()
  yield* host.put(documentOf(onRequest(extra)))
  yield* host.untilState("app-1", "running")
  return host
})

/** A host with one app that has been put to sleep by its quiet. */
const asleep = Effect.fnUntraced(function* (extra: InstanceChanges = {}) {
  const host = yield* awake(extra)
  yield* host.untilState("app-1", "idle")
  return host
})

/** Has the app that sleeps wake for a request, which it answers. */
const wakeByRequest = Effect.fnUntraced(function* (host: Host) {
  const answer = yield* Effect.forkChild(request(host.proxy, at))
  yield* host.untilState("app-1", "running")
  assert.strictEqual((yield* Fiber.join(answer)).kind, "app")
})

const counter = (host: Host) => host.machine.machineOf("app-1")?.memory

describe("an app that is on-request", () => {
  it.effect("boots once without a request, becomes running, and sleeps on its own when it is quiet", () =>
    Effect.gen(function* () {
      const host = yield* asleep()
      assert.strictEqual(host.machine.callsOf("boot").length, 1)
      assert.deepStrictEqual(host.machine.machines, [])
      assert.isTrue(host.machine.snapshots.has(snapshotDir))
      assert.strictEqual(host.instanceOf("app-1")?.message, undefined)
    })
  )

  it.effect("sleeps five minutes after its last request when the document says nothing", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      const { activation: _, ...plain } = onRequest()
      yield* host.put(documentOf(plain))
      yield* host.untilState("app-1", "running")
      yield* TestClock.adjust(295_000)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      yield* TestClock.adjust(10_000)
      yield* host.untilState("app-1", "idle")
    })
  )

  it.effect("stays up while requests come, and while one is open however quiet", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      for (let round = 0; round < 10; round++) {
        yield* TestClock.adjust(minute / 2)
        yield* request(host.proxy, at)
      }
      const open = yield* openRequest(host.proxy, at)
      yield* TestClock.adjust(10 * minute)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      yield* open.finish
      yield* host.untilState("app-1", "idle")
    })
  )

  it.effect("never sleeps when its policy is never, nor when it is running", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(
        documentOf(
          onRequest({ activation: { sleepWhen: { kind: "never" } } }),
          rawInstance("app-2", { desiredState: "running", hostnames: [] })
        )
      )
      yield* host.untilRunning("app-1", "app-2")
      yield* TestClock.adjust(60 * minute)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      assert.strictEqual(host.instanceOf("app-2")?.state, "running")
    })
  )

  it.effect("sleeps at the end of its lifetime although a request is open, but not before 30 s more", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(
        documentOf(onRequest({ activation: { sleepWhen: { kind: "max-lifetime", ttlMs: minute } } }))
      )
      yield* host.untilState("app-1", "running")
      yield* openRequest(host.proxy, at)
      yield* TestClock.adjust(minute + 25_000)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      yield* TestClock.adjust(10_000)
      yield* host.untilState("app-1", "idle")
      yield* wakeByRequest(host)
    })
  )

  it.effect("wakes with its memory for the next request, which waits for its health check", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      counter(host)?.set("count", 2)
      yield* host.untilState("app-1", "idle")
      yield* wakeByRequest(host)
      assert.strictEqual(counter(host)?.get("count"), 2)
      assert.strictEqual(host.machine.callsOf("boot").length, 1)
      assert.strictEqual(host.machine.callsOf("wake").length, 1)
      assert.strictEqual(host.instanceOf("app-1")?.restartCount, 0)
      assert.isFalse(host.machine.snapshots.has(snapshotDir))
    })
  )

  it.effect("is restored once for 32 callers who come together", () =>
    Effect.gen(function* () {
      const host = yield* asleep()
      const callers = yield* Effect.forkChild(
        Effect.all(
          Array.from({ length: 32 }, () => request(host.proxy, at)),
          { concurrency: "unbounded" }
        )
      )
      yield* host.untilState("app-1", "running")
      const answers = yield* Fiber.join(callers)
      assert.isTrue(answers.every(({ kind }) => kind === "app"))
      assert.strictEqual(host.machine.callsOf("wake").length, 1)
      const page = yield* host.metrics
      assert.match(page, /nibrunner_app_wakes_total\{app="app-1",outcome="restored"\} 1/u)
      assert.match(page, /nibrunner_wake_requests_coalesced_total 31/u)
    })
  )

  it.effect("a request that comes while it falls asleep waits, and wakes it", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      const gate = yield* Deferred.make<void>()
      host.machine.next("sleep", "app-1", { stallUntil: gate })
      yield* host.until("the sleep is under way", () => host.machine.callsOf("sleep").length === 1)
      const answer = yield* Effect.forkChild(request(host.proxy, at))
      yield* TestClock.adjust(1_000)
      assert.isUndefined(answer.pollUnsafe())
      yield* Deferred.succeed(gate, undefined)
      yield* host.until("the caller is answered", () => answer.pollUnsafe() !== undefined)
      assert.strictEqual((yield* Fiber.join(answer)).kind, "app")
      assert.strictEqual(host.machine.callsOf("wake").length, 1)
    })
  )

  it.effect("is not put to sleep when something comes between the decision and the act", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      // What is open by the time that everything is held has reached the app already.
      const open = yield* openRequest(host.proxy, at)
      yield* TestClock.adjust(2 * minute)
      yield* host.until("a sleep was refused", () => host.machine.callsOf("freeze").length === 0)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      assert.strictEqual(host.routes.get("app-1")?.target.kind, "up")
      yield* open.finish
    })
  )

  it.effect("runs on with its memory when its sleep fails, says why, and is tried again ever later", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      host.machine.always("sleep", "app-1", { fail: "no space is left in snapshot_dir" })
      yield* host.put(documentOf(onRequest()))
      yield* host.untilState("app-1", "running")
      counter(host)?.set("count", 1)
      yield* host.until("a sleep has failed", () => host.instanceOf("app-1")?.message !== undefined)
      assert.match(host.instanceOf("app-1")?.message ?? "", /no space is left/u)
      const tries = () => host.machine.callsOf("sleep").length
      yield* TestClock.adjust(25_000)
      assert.strictEqual(tries(), 1)
      yield* TestClock.adjust(10_000)
      assert.strictEqual(tries(), 2)
      yield* TestClock.adjust(50_000)
      assert.strictEqual(tries(), 2)
      yield* TestClock.adjust(20_000)
      assert.strictEqual(tries(), 3)
      assert.strictEqual((yield* request(host.proxy, at)).kind, "app")
      assert.strictEqual(counter(host)?.get("count"), 1)
      host.machine.always("sleep", "app-1", undefined)
      yield* host.untilState("app-1", "idle")
    })
  )

  it.effect("holds its callers for ten seconds when its guest is silent, whatever becomes of its thaw", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      const answer = yield* Deferred.make<void>()
      host.machine.always("freeze", "app-1", { stallUntil: answer })
      host.machine.always("thaw", "app-1", { stallUntil: answer })
      yield* host.until("it is being frozen", () => host.machine.callsOf("freeze").length === 1)
      const caller = yield* Effect.forkChild(request(host.proxy, at))
      yield* TestClock.adjust(9_000)
      assert.isUndefined(caller.pollUnsafe())
      yield* TestClock.adjust(1_100)
      assert.strictEqual((yield* Fiber.join(caller)).kind, "app")
      assert.match(
        host.instanceOf("app-1")?.message ?? "",
        /freeze its program: it said nothing in 10000 ms/u
      )
      // Nothing is asked of it before it is known to run on.
      yield* TestClock.adjust(5 * minute)
      assert.strictEqual(host.machine.callsOf("freeze").length, 1)
      host.machine.always("freeze", "app-1", undefined)
      host.machine.always("thaw", "app-1", undefined)
      yield* Deferred.succeed(answer, undefined)
      yield* host.untilState("app-1", "idle")
    })
  )

  it.effect("sleeps in its turn however many guests there are that do not answer", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const silent = Array.from({ length: 8 }, (_, index) => `silent-${index}`)
      for (const appId of silent)
        host.machine.always("freeze", appId, { stallUntil: yield* Deferred.make<void>() })
      const plain = (appId: string, timeoutMs: number) =>
        rawInstance(appId, {
          desiredState: "on-request",
          hostnames: [],
          activation: { sleepWhen: { kind: "traffic-idle", timeoutMs } }
        })
      yield* host.start()
      yield* host.put(
        documentOf(...silent.map((appId) => plain(appId, minute)), plain("app-1", 2 * minute + 5_000))
      )
      yield* host.untilState("app-1", "running")
      yield* TestClock.adjust(2 * minute)
      // Each has failed once, and they are tried again one after the other.
      assert.isTrue(silent.every((appId) => host.machine.callsOf("freeze", appId).length > 0))
      const tries = host.machine.callsOf("freeze").length
      yield* host.until("app-1 sleeps", () => host.instanceOf("app-1")?.state === "idle", 8_000)
      yield* TestClock.adjust(20_000)
      assert.isAbove(host.machine.callsOf("freeze").length, tries + 1)
    })
  )

  it.effect("is not put to sleep while its volume gives errors: its guest would not answer", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      const machine = host.machine.machineOf("app-1")
      if (machine !== undefined) machine.waitsForVolume = true
      yield* TestClock.adjust(3 * minute)
      assert.deepStrictEqual(host.machine.callsOf("freeze"), [])
      assert.strictEqual(host.routes.get("app-1")?.target.kind, "up")
      if (machine !== undefined) machine.waitsForVolume = false
      yield* host.untilState("app-1", "idle")
    })
  )

  it.effect("is replaced when its VMM ends as it falls asleep", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      const gate = yield* Deferred.make<void>()
      host.machine.next("freeze", "app-1", { stallUntil: gate })
      yield* host.until("it is being frozen", () => host.machine.callsOf("freeze").length === 1)
      yield* host.machine.end("app-1", { kind: "killed", signal: "SIGKILL" })
      yield* Deferred.succeed(gate, undefined)
      yield* host.until("it boots again", () => host.machine.callsOf("boot").length === 2)
      yield* host.untilState("app-1", "running")
    })
  )

  for (const damage of ["memory", "state", "record"] as const) {
    it.effect(
      `boots when the ${damage} of its snapshot is damaged, and the caller is answered all the same`,
      () =>
        Effect.gen(function* () {
          const host = yield* asleep()
          const snapshot = host.machine.snapshots.get(snapshotDir)
          if (snapshot !== undefined) snapshot.damage = damage
          yield* wakeByRequest(host)
          assert.strictEqual(host.machine.callsOf("boot").length, 2)
          assert.isFalse(host.machine.snapshots.has(snapshotDir))
          const page = yield* host.metrics
          assert.match(page, /nibrunner_snapshots_discarded_total\{reason="damaged"\} 1/u)
          assert.match(page, /nibrunner_app_wakes_total\{app="app-1",outcome="cold_boot"\} 1/u)
        })
    )
  }

  it.effect("sleeps on when there is no room, and the caller is told to come back", () =>
    Effect.gen(function* () {
      const host = yield* startHost({ machine: { memoryMib: 640 + 300 } })
      yield* host.put(documentOf(onRequest()))
      yield* host.untilState("app-1", "running")
      yield* host.untilState("app-1", "idle")
      yield* host.put(
        documentOf(onRequest(), rawInstance("app-2", { desiredState: "running", hostnames: [] }))
      )
      yield* host.untilState("app-2", "running")
      const answer = yield* request(host.proxy, at)
      assert.deepStrictEqual(answer, {
        kind: "proxy",
        status: 503,
        reason: "This app sleeps, and the host is 212 MiB short of the memory to wake it.",
        retryAfter: 5
      })
      yield* host.until(
        "the report says why",
        () => host.instanceOf("app-1")?.message?.includes("MiB short of the memory") === true
      )
      assert.strictEqual(host.instanceOf("app-1")?.state, "idle")
      assert.isTrue(host.machine.snapshots.has(snapshotDir))
    })
  )

  it.effect(
    "keeps its snapshot when the VMM does not even start, twice, and is woken by who comes next",
    () =>
      Effect.gen(function* () {
        const host = yield* asleep()
        host.machine.next("wake", "app-1", { fail: "a port is taken" }, { fail: "a port is taken" })
        const first = yield* request(host.proxy, at)
        assert.strictEqual(first.kind === "proxy" ? first.status : 200, 503)
        assert.strictEqual(host.instanceOf("app-1")?.state, "idle")
        yield* wakeByRequest(host)
        assert.strictEqual(host.machine.callsOf("boot").length, 1)
      })
  )

  it.effect("is woken by a connection to a raw port, which then reaches it", () =>
    Effect.gen(function* () {
      const ports = [{ name: "echo", guestPort: 4000 }]
      const host = yield* asleep({ config: { ports } })
      const slotPort = host.instanceOf("app-1")?.hostPort ?? 0
      const connection = yield* Effect.forkChild(openConnection(host.proxy, slotPort + 1))
      yield* host.untilState("app-1", "running")
      assert.strictEqual((yield* Fiber.join(connection)).reached?.port, 4000)
    })
  )

  it.effect("a new release of one that sleeps boots as itself, and the old snapshot is never used", () =>
    Effect.gen(function* () {
      const host = yield* asleep()
      yield* host.put(documentOf(onRequest({ deploymentId: "dep-2" })))
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.machine.callsOf("wake").length, 0)
      assert.strictEqual(host.machine.callsOf("boot").length, 2)
      assert.isFalse(host.machine.snapshots.has(snapshotDir))
      yield* host.untilState("app-1", "idle")
      assert.strictEqual(host.machine.snapshots.get(snapshotDir)?.record.deploymentId, "dep-2")
    })
  )

  it.effect("a new release that cannot be fetched leaves one that sleeps as it is", () =>
    Effect.gen(function* () {
      const host = yield* asleep()
      host.images.script.fail("prepare", new ObjectMissing({ objectKey: "server", store: "/store" }), {
        times: 1
      })
      yield* host.put(documentOf(onRequest({ deploymentId: "dep-2" })))
      yield* host.until(
        "it says why",
        () => host.instanceOf("app-1")?.message?.includes("cannot be fetched") === true
      )
      assert.strictEqual(host.instanceOf("app-1")?.state, "pending")
      assert.strictEqual((yield* request(host.proxy, at)).kind, "proxy")
      yield* host.put(documentOf(onRequest()))
      yield* host.untilState("app-1", "idle")
      yield* wakeByRequest(host)
      assert.strictEqual(host.machine.callsOf("boot").length, 1)
    })
  )

  it.effect("boots when the snapshot that lies there is not that of its last sleep", () =>
    Effect.gen(function* () {
      const host = yield* asleep()
      const older = host.machine.snapshots.get(snapshotDir)
      yield* wakeByRequest(host)
      yield* host.untilState("app-1", "idle")
      if (older !== undefined) host.machine.snapshots.set(snapshotDir, older)
      yield* wakeByRequest(host)
      assert.strictEqual(host.machine.callsOf("boot").length, 2)
    })
  )

  it.effect("one that sleeps and is to run wakes by itself", () =>
    Effect.gen(function* () {
      const host = yield* asleep()
      yield* host.put(documentOf(onRequest({ desiredState: "running", activation: null })))
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.machine.callsOf("wake").length, 1)
    })
  )

  it.effect("one that is to run and cannot be woken is tried again, now and then", () =>
    Effect.gen(function* () {
      const host = yield* asleep()
      host.machine.always("wake", "app-1", { fail: "a port is taken" })
      yield* host.put(documentOf(onRequest({ desiredState: "running", activation: null })))
      yield* TestClock.adjust(30_000)
      const tries = host.machine.callsOf("wake").length
      assert.isAbove(tries, 5)
      assert.isBelow(tries, 140)
      host.machine.always("wake", "app-1", undefined)
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.machine.callsOf("boot").length, 1)
    })
  )

  it.effect("one that was stopped boots for the next request, and not before", () =>
    Effect.gen(function* () {
      const host = yield* asleep()
      yield* host.put(documentOf(onRequest({ desiredState: "stopped", activation: null })))
      yield* host.untilState("app-1", "stopped")
      assert.isFalse(host.machine.snapshots.has(snapshotDir))
      assert.strictEqual(host.machine.links.size, 0)
      yield* host.put(documentOf(onRequest()))
      yield* host.untilState("app-1", "idle")
      yield* TestClock.adjust(minute)
      assert.strictEqual(host.machine.callsOf("boot").length, 1)
      yield* wakeByRequest(host)
      assert.strictEqual(host.machine.callsOf("boot").length, 2)
    })
  )

  it.effect("one that sleeps and leaves the document leaves no snapshot, and its hostname is nobody's", () =>
    Effect.gen(function* () {
      const host = yield* asleep()
      yield* host.put(rawDocument({ volumes: [rawVolume("app-1", { desiredState: "absent" })] }))
      yield* host.until("it has left the report", () => host.instanceOf("app-1") === undefined)
      yield* host.until("its snapshot is gone", () => host.machine.snapshots.size === 0)
      yield* host.until("its route is gone", () => !host.routes.has("app-1"))
    })
  )

  it.effect("sleeps through a restart of the daemon, and wakes with its memory", () =>
    Effect.gen(function* () {
      const host = yield* asleep()
      yield* host.stop()
      yield* host.start()
      yield* host.untilState("app-1", "idle")
      yield* wakeByRequest(host)
      assert.strictEqual(host.machine.callsOf("boot").length, 1)
    })
  )

  for (const step of ["freeze", "sleep", "slept", "wake", "woken", "connect", "thaw"] as const) {
    it.effect(`answers again when the daemon dies at ${step}, and no second microVM is ever there`, () =>
      Effect.gen(function* () {
        const host = yield* awake()
        const gate = yield* Deferred.make<void>()
        const wakes = step !== "freeze" && step !== "sleep" && step !== "slept"
        if (wakes) yield* host.untilState("app-1", "idle")
        const before = host.machine.callsOf(step).length
        host.machine.next(step, "app-1", { stallUntil: gate })
        const caller = wakes ? yield* Effect.forkChild(Effect.exit(request(host.proxy, at))) : undefined
        yield* host.until(`${step} is reached`, () => host.machine.callsOf(step).length > before)
        yield* Effect.forkChild(Effect.delay(Deferred.succeed(gate, undefined), 100))
        const death = yield* Effect.forkChild(host.crash())
        yield* TestClock.adjust(1_000)
        yield* Fiber.join(death)
        if (caller !== undefined) yield* Fiber.interrupt(caller)
        yield* host.start()
        const answer = yield* Effect.forkChild(
          Effect.repeat(Effect.delay(request(host.proxy, at), 100), { until: ({ kind }) => kind === "app" })
        )
        yield* host.until("it answers", () => answer.pollUnsafe() !== undefined)
        yield* host.untilState("app-1", "running")
        assert.strictEqual(host.machine.machines.length, 1)
        assert.isUndefined(host.machine.machineOf("app-1")?.frozen)
        yield* host.untilState("app-1", "idle")
      })
    )
  }
})

describe("a release that replaces one that is up", () => {
  it.effect("the old one serves until the new one is fetched, and for as long as that fails", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      host.images.script.fail("prepare", new ObjectMissing({ objectKey: "server", store: "/store" }), {
        times: 2
      })
      yield* host.put(documentOf(onRequest({ deploymentId: "dep-2" })))
      yield* host.until(
        "it says why",
        () => host.instanceOf("app-1")?.message?.includes("serves on") === true
      )
      assert.strictEqual(host.instanceOf("app-1")?.state, "pending")
      assert.strictEqual((yield* request(host.proxy, at)).kind, "app")
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.instanceOf("app-1")?.deploymentId, "dep-2")
      assert.strictEqual(host.machine.callsOf("boot").length, 2)
    })
  )

  it.effect("the old one serves on when this host does not run the new one, until it is corrected", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      const resources = { vcpuCount: 99, memoryMib: 256 }
      yield* host.put(documentOf(onRequest({ deploymentId: "dep-2", config: { resources } })))
      yield* host.untilState("app-1", "failed")
      assert.match(
        host.instanceOf("app-1")?.message ?? "",
        /^config\.resources\.vcpuCount is 99, .*\. Deployment dep-1 serves on$/u
      )
      assert.strictEqual((yield* request(host.proxy, at)).kind, "app")
      assert.strictEqual(host.machine.callsOf("boot").length, 1)
      yield* host.put(documentOf(onRequest({ deploymentId: "dep-2" })))
      yield* host.untilState("app-1", "running")
      assert.strictEqual(host.machine.callsOf("boot").length, 2)
    })
  )

  it.effect("a corrected one is fetched at once, and the quiet of the old one is not held against it", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      host.images.script.fail("prepare", new ObjectMissing({ objectKey: "server", store: "/store" }), {
        times: 7
      })
      yield* host.put(documentOf(onRequest({ deploymentId: "dep-2" })))
      yield* TestClock.adjust(3 * minute - 25_000)
      assert.strictEqual(host.machine.callsOf("freeze").length, 0)
      const fetches = host.images.script.count("prepare")
      yield* host.put(documentOf(onRequest({ deploymentId: "dep-2", hostnames: [] })))
      yield* TestClock.adjust(1_000)
      assert.isAbove(host.images.script.count("prepare"), fetches)
      yield* host.untilState("app-1", "running")
      yield* TestClock.adjust(30_000)
      assert.strictEqual(host.instanceOf("app-1")?.message, undefined)
      assert.strictEqual(host.machine.callsOf("freeze").length, 0)
    })
  )

  it.effect("a request that comes between the two waits for the new one", () =>
    Effect.gen(function* () {
      const host = yield* awake()
      host.machine.script("app-1", { helloAfterMs: 3_000, shutdownAfterMs: 500 })
      yield* host.put(documentOf(onRequest({ deploymentId: "dep-2" })))
      yield* host.until("the old one ends", () => host.machine.callsOf("shutdown").length === 1)
      const answer = yield* Effect.forkChild(request(host.proxy, at))
      yield* host.until("the new one is up", () => host.machine.callsOf("hand-over").length === 2)
      yield* host.until("answered", () => answer.pollUnsafe() !== undefined)
      assert.strictEqual((yield* Fiber.join(answer)).kind, "app")
    })
  )
})
