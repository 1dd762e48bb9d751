/** What every proxy must do. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, type Layer, Ref, type Scope } from "effect"
import { AppId } from "../../src/document/schema.ts"
import {
  type AsleepTarget,
  Proxy,
  type RouteTarget,
  type UnavailableTarget,
  type UpTarget
} from "../../src/services/Proxy.ts"

/** What a caller gets: the name of the app that answered, or the proxy's own status and sentence. */
export type ProxyAnswer =
  | { readonly app: string }
  | { readonly status: number; readonly reason: string; readonly retryAfter?: number | undefined }

export type ProxyAddress = { readonly hostname: string } | { readonly hostPort: number }

/** A request that is on its way to the app. */
export interface HeldRequest {
  /** Lets the app answer, and gives the answer. */
  readonly finish: Effect.Effect<ProxyAnswer>
}

export interface RawConnection {
  /** Who answers; undefined when it was refused. */
  readonly app: string | undefined
  readonly close: Effect.Effect<void>
}

export interface ProxyHarness {
  readonly layer: Layer.Layer<Proxy, unknown>
  /** A target whose answers carry the name. */
  readonly target: (name: string) => Effect.Effect<UpTarget, never, Scope.Scope>
  /** A target where nothing listens. */
  readonly deafTarget: RouteTarget
  /** A port that is free on this machine. */
  readonly freePort: Effect.Effect<number>
  /** Interrupted, it is a caller that leaves. */
  readonly ask: (address: ProxyAddress) => Effect.Effect<ProxyAnswer, never, Proxy>
  /** What answers with the name on a raw port. */
  readonly guest: (
    name: string
  ) => Effect.Effect<{ readonly target: UpTarget; readonly guestPort: number }, never, Scope.Scope>
  /** A guest port of every `guest` where nothing listens. */
  readonly deafGuestPort: number
  /** A connection to a raw port, once it is refused or has arrived; interrupted, it is a client that leaves. */
  readonly connect: (hostPort: number) => Effect.Effect<RawConnection, never, Proxy | Scope.Scope>
  /** A request whose answer the app keeps back. Succeeds when the app has it. */
  readonly hold: (address: ProxyAddress) => Effect.Effect<HeldRequest, never, Proxy | Scope.Scope>
}

/** An app that sleeps until the test has decided what its wake gives. */
const sleeper = Effect.gen(function* () {
  const asked = yield* Ref.make(0)
  const outcome = yield* Deferred.make<UpTarget | UnavailableTarget>()
  const target: AsleepTarget = {
    kind: "asleep",
    wake: Effect.andThen(
      Ref.update(asked, (count) => count + 1),
      Deferred.await(outcome)
    )
  }
  return {
    target,
    asked: Ref.get(asked),
    wakes: (to: UpTarget | UnavailableTarget) => Deferred.succeed(outcome, to)
  }
})

const one = AppId.make("one")
const two = AppId.make("two")

export const proxyConformance = (name: string, make: Effect.Effect<ProxyHarness, unknown, Scope.Scope>) =>
  describe(`${name} as the proxy`, () => {
    const test = (
      sentence: string,
      body: (
        harness: ProxyHarness,
        proxy: Proxy["Service"]
      ) => Effect.Effect<void, unknown, Proxy | Scope.Scope>
    ) =>
      it.live(sentence, () =>
        Effect.flatMap(make, (harness) =>
          Effect.flatMap(Proxy, (proxy) => body(harness, proxy)).pipe(Effect.provide(harness.layer))
        )
      )

    const open = (proxy: Proxy["Service"], appId: AppId) =>
      Effect.map(proxy.traffic, ({ apps }) => apps.get(appId)?.open)

    test("reaches an app by each of its hostnames, from the moment that its route is set", ({
      target,
      ask
    }, proxy) =>
      Effect.gen(function* () {
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test", "b.test"], target: yield* target("one") })
        yield* proxy.setRoute({ appId: two, hostnames: ["c.test"], target: yield* target("two") })
        assert.deepStrictEqual(yield* ask({ hostname: "a.test" }), { app: "one" })
        assert.deepStrictEqual(yield* ask({ hostname: "B.test" }), { app: "one" })
        assert.deepStrictEqual(yield* ask({ hostname: "c.test" }), { app: "two" })
      }))

    test("answers 404 for a hostname that no app has, or has no more", ({ target, ask }, proxy) =>
      Effect.gen(function* () {
        assert.include(yield* ask({ hostname: "a.test" }), { status: 404 })
        const up = yield* target("one")
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test", "b.test"], target: up })
        yield* proxy.setRoute({ appId: one, hostnames: ["b.test"], target: up })
        assert.include(yield* ask({ hostname: "a.test" }), { status: 404 })
        assert.deepStrictEqual(yield* ask({ hostname: "b.test" }), { app: "one" })
        yield* proxy.removeRoute(one)
        assert.include(yield* ask({ hostname: "b.test" }), { status: 404 })
      }))

    test("answers 503 with the reason for an app that takes no requests", ({ target, ask }, proxy) =>
      Effect.gen(function* () {
        const reason = "the app is stopped"
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: yield* target("one") })
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: { kind: "unavailable", reason } })
        assert.deepStrictEqual(yield* ask({ hostname: "a.test" }), { status: 503, reason })
      }))

    test("answers 502 for an app that does not listen", ({ deafTarget, ask }, proxy) =>
      Effect.gen(function* () {
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: deafTarget })
        assert.include(yield* ask({ hostname: "a.test" }), { status: 502 })
      }))

    test("sends the next request to the new target when it changes", ({ target, ask }, proxy) =>
      Effect.gen(function* () {
        for (const life of ["first", "second", "third"]) {
          yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: yield* target(life) })
          assert.deepStrictEqual(yield* ask({ hostname: "a.test" }), { app: life })
        }
      }))

    test("gives a hostname to the app that was routed with it last", ({ target, ask }, proxy) =>
      Effect.gen(function* () {
        const first = yield* target("one")
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test", "b.test"], target: first })
        yield* proxy.setRoute({ appId: two, hostnames: ["a.test"], target: yield* target("two") })
        assert.deepStrictEqual(yield* ask({ hostname: "a.test" }), { app: "two" })
        assert.deepStrictEqual(yield* ask({ hostname: "b.test" }), { app: "one" })
        yield* proxy.removeRoute(one)
        assert.deepStrictEqual(yield* ask({ hostname: "a.test" }), { app: "two" })
      }))

    test("reaches an app by its own port until that is taken away", ({ target, ask, freePort }, proxy) =>
      Effect.gen(function* () {
        const hostPort = yield* freePort
        const up = yield* target("one")
        yield* proxy.setRoute({ appId: one, hostnames: [], target: up, hostPort })
        assert.deepStrictEqual(yield* ask({ hostPort }), { app: "one" })
        yield* proxy.removeRoute(one)
        yield* proxy.setRoute({ appId: two, hostnames: [], target: yield* target("two"), hostPort })
        assert.deepStrictEqual(yield* ask({ hostPort }), { app: "two" })
      }))

    test("removes a route twice, and one that never was, without a word", (_harness, proxy) =>
      Effect.gen(function* () {
        yield* proxy.removeRoute(one)
        yield* proxy.setRoute({
          appId: one,
          hostnames: ["a.test"],
          target: { kind: "unavailable", reason: "x" }
        })
        yield* proxy.removeRoute(one)
        yield* proxy.removeRoute(one)
        assert.strictEqual((yield* proxy.traffic).apps.size, 0)
      }))

    test("counts what became of requests", ({ target, deafTarget, ask }, proxy) =>
      Effect.gen(function* () {
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: yield* target("one") })
        yield* ask({ hostname: "a.test" })
        yield* ask({ hostname: "a.test" })
        yield* ask({ hostname: "z.test" })
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: deafTarget })
        yield* ask({ hostname: "a.test" })
        yield* proxy.setRoute({
          appId: one,
          hostnames: ["a.test"],
          target: { kind: "unavailable", reason: "x" }
        })
        yield* ask({ hostname: "a.test" })
        const { outcomes, requestSeconds, apps } = yield* proxy.traffic
        assert.strictEqual(requestSeconds.count, 2)
        assert.strictEqual(
          requestSeconds.counts.reduce((sum, count) => sum + count, 0),
          2
        )
        assert.strictEqual(requestSeconds.sum, apps.get(one)?.answerSeconds)
        assert.deepStrictEqual(outcomes, {
          served: 2,
          noSuchHost: 1,
          wrongHost: 0,
          refused: 1,
          unreachable: 1
        })
        assert.deepInclude(apps.get(one), {
          open: 0,
          held: 0,
          arrivals: 4,
          routed: 3,
          answers: { 1: 0, 2: 2, 3: 0, 4: 0, 5: 0 },
          refused: 1,
          unreachable: 1
        })
      }))

    test("counts a request as open until its answer is complete, also when its route has gone", ({
      target,
      hold
    }, proxy) =>
      Effect.gen(function* () {
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: yield* target("one") })
        assert.strictEqual(yield* open(proxy, one), 0)
        const first = yield* hold({ hostname: "a.test" })
        const second = yield* hold({ hostname: "a.test" })
        assert.strictEqual(yield* open(proxy, one), 2)
        assert.deepStrictEqual(yield* first.finish, { app: "one" })
        assert.strictEqual(yield* open(proxy, one), 1)
        yield* proxy.removeRoute(one)
        assert.strictEqual(yield* open(proxy, one), 1)
        assert.deepStrictEqual(yield* second.finish, { app: "one" })
        assert.isUndefined(yield* open(proxy, one))
      }))

    /** Waits until the app has so many requests that wait for its wake. */
    const untilHeld = (proxy: Proxy["Service"], appId: AppId, count: number) =>
      Effect.map(proxy.traffic, ({ apps }) => apps.get(appId)).pipe(
        Effect.tap((app) => (app?.held === count ? Effect.void : Effect.sleep(5))),
        Effect.repeat({ until: (app) => app?.held === count }),
        Effect.timeout("40 seconds")
      )

    const untilOpen = (proxy: Proxy["Service"], appId: AppId, count: number) =>
      open(proxy, appId).pipe(
        Effect.tap((now) => (now === count ? Effect.void : Effect.sleep(5))),
        Effect.repeat({ until: (now) => now === count }),
        Effect.timeout("40 seconds")
      )

    const callers = (count: number, call: Effect.Effect<ProxyAnswer, never, Proxy>) =>
      Effect.all(
        Array.from({ length: count }, () => call),
        { concurrency: "unbounded" }
      )

    test("wakes an app that sleeps once for all who ask, and each of them is answered by it", ({
      target,
      ask
    }, proxy) =>
      Effect.gen(function* () {
        const sleep = yield* sleeper
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test", "b.test"], target: sleep.target })
        assert.strictEqual(yield* sleep.asked, 0)
        const first = yield* Effect.forkScoped(callers(16, ask({ hostname: "a.test" })))
        const second = yield* Effect.forkScoped(callers(16, ask({ hostname: "b.test" })))
        yield* untilHeld(proxy, one, 32)
        assert.include((yield* proxy.traffic).apps.get(one), { open: 32, held: 32, arrivals: 32, routed: 32 })
        assert.strictEqual(yield* sleep.asked, 1)
        assert.strictEqual((yield* proxy.traffic).joinedWakes, 31)
        yield* sleep.wakes(yield* target("woken"))
        const answers = [...(yield* Fiber.join(first)), ...(yield* Fiber.join(second))]
        assert.deepStrictEqual(
          answers,
          Array.from({ length: 32 }, () => ({ app: "woken" }))
        )
        assert.deepStrictEqual(yield* ask({ hostname: "a.test" }), { app: "woken" })
        assert.strictEqual(yield* sleep.asked, 1)
        assert.include((yield* proxy.traffic).apps.get(one), { open: 0, held: 0 })
      }))

    test("answers 503 with the reason when an app cannot be woken, and asks again for the next one", ({
      ask
    }, proxy) =>
      Effect.gen(function* () {
        const reason = "this host lacks 12 MiB of memory for the app"
        let asked = 0
        const wake = Effect.sync(() => {
          asked++
          return { kind: "unavailable", reason, retryAfter: 7 } as const
        })
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: { kind: "asleep", wake } })
        for (let time = 1; time <= 3; time++) {
          assert.deepStrictEqual(yield* ask({ hostname: "a.test" }), { status: 503, reason, retryAfter: 7 })
          assert.strictEqual(asked, time)
        }
        assert.include((yield* proxy.traffic).apps.get(one), { open: 0, routed: 3, refused: 3 })
        assert.strictEqual((yield* proxy.traffic).outcomes.refused, 3)
      }))

    test("answers 503 when a wake ends in a defect", ({ ask }, proxy) =>
      Effect.gen(function* () {
        const wake = Effect.die(new Error("a defect that the test makes"))
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: { kind: "asleep", wake } })
        assert.include(yield* ask({ hostname: "a.test" }), { status: 503 })
      }))

    test("forgets a caller that leaves before the app is awake, and wakes it for the others", ({
      target,
      ask
    }, proxy) =>
      Effect.gen(function* () {
        const sleep = yield* sleeper
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: sleep.target })
        const patient = yield* Effect.forkScoped(ask({ hostname: "a.test" }))
        yield* untilHeld(proxy, one, 1)
        const impatient = yield* Effect.forkScoped(callers(3, ask({ hostname: "a.test" })))
        yield* untilHeld(proxy, one, 4)
        yield* Fiber.interrupt(impatient)
        yield* untilHeld(proxy, one, 1)
        yield* sleep.wakes(yield* target("woken"))
        assert.deepStrictEqual(yield* Fiber.join(patient), { app: "woken" })
        assert.strictEqual(yield* sleep.asked, 1)
        assert.include((yield* proxy.traffic).apps.get(one), { open: 0, routed: 4 })
      }))

    test("goes on with a wake that nobody waits for any more: who comes later joins it", ({
      target,
      ask
    }, proxy) =>
      Effect.gen(function* () {
        const sleep = yield* sleeper
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: sleep.target })
        const impatient = yield* Effect.forkScoped(ask({ hostname: "a.test" }))
        yield* untilHeld(proxy, one, 1)
        yield* Fiber.interrupt(impatient)
        yield* untilHeld(proxy, one, 0)
        const later = yield* Effect.forkScoped(ask({ hostname: "a.test" }))
        yield* untilHeld(proxy, one, 1)
        yield* sleep.wakes(yield* target("woken"))
        assert.deepStrictEqual(yield* Fiber.join(later), { app: "woken" })
        assert.strictEqual(yield* sleep.asked, 1)
      }))

    test("lets a route that is set during a wake go before what the wake gives", ({ target, ask }, proxy) =>
      Effect.gen(function* () {
        const sleep = yield* sleeper
        const route = { appId: one, hostnames: ["a.test"] }
        const held = Effect.forkScoped(ask({ hostname: "a.test" }))

        yield* proxy.setRoute({ ...route, target: sleep.target })
        const toUp = yield* held
        yield* untilHeld(proxy, one, 1)
        yield* proxy.setRoute({ ...route, target: yield* target("set") })
        assert.deepStrictEqual(yield* Fiber.join(toUp), { app: "set" })
        yield* sleep.wakes(yield* target("woken"))
        assert.deepStrictEqual(yield* ask({ hostname: "a.test" }), { app: "set" })

        const second = yield* sleeper
        yield* proxy.setRoute({ ...route, target: second.target })
        const toUnavailable = yield* held
        yield* untilHeld(proxy, one, 1)
        yield* proxy.setRoute({ ...route, target: { kind: "unavailable", reason: "it stops" } })
        assert.include(yield* Fiber.join(toUnavailable), { status: 503, reason: "it stops" })

        yield* proxy.setRoute({ ...route, target: second.target })
        const toRemoved = yield* held
        yield* untilHeld(proxy, one, 1)
        yield* proxy.removeRoute(one)
        assert.include(yield* Fiber.join(toRemoved), { status: 503 })
        assert.isUndefined(yield* open(proxy, one))
      }))

    test("keeps a wake when the route is set again with it, and runs another when it is set with another", ({
      target,
      ask
    }, proxy) =>
      Effect.gen(function* () {
        const [first, second] = [yield* sleeper, yield* sleeper]
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test"], target: first.target })
        const held = yield* Effect.forkScoped(ask({ hostname: "a.test" }))
        yield* untilHeld(proxy, one, 1)
        yield* proxy.setRoute({ appId: one, hostnames: ["a.test", "b.test"], target: { ...first.target } })
        assert.strictEqual(yield* first.asked, 1)
        yield* proxy.setRoute({ appId: one, hostnames: ["b.test"], target: second.target })
        yield* first.wakes(yield* target("first"))
        yield* Effect.yieldNow
        assert.include((yield* proxy.traffic).apps.get(one), { held: 1 })
        yield* second.wakes(yield* target("second"))
        assert.deepStrictEqual(yield* Fiber.join(held), { app: "second" })
        assert.deepStrictEqual([yield* first.asked, yield* second.asked], [1, 1])
      }))

    test("carries connections to raw ports to the guest's port of that place, and counts them", ({
      guest,
      freePort,
      deafGuestPort,
      connect
    }, proxy) =>
      Effect.gen(function* () {
        const { target, guestPort } = yield* guest("raw")
        const [onePort, twoPort] = [yield* freePort, yield* freePort]
        const rawPorts = [
          { name: "one", hostPort: onePort, guestPort },
          { name: "two", hostPort: twoPort, guestPort: deafGuestPort }
        ]
        yield* proxy.setRoute({ appId: one, hostnames: [], target, rawPorts })
        const connection = yield* connect(onePort)
        assert.strictEqual(connection.app, "raw")
        assert.isUndefined((yield* connect(twoPort)).app)
        const { apps } = yield* proxy.traffic
        assert.include(apps.get(one), { open: 1, held: 0, arrivals: 2, routed: 0 })
        assert.include(apps.get(one)?.tcp, { open: 1, relayed: 1, notTaken: 1 })
        yield* connection.close
        yield* untilOpen(proxy, one, 0)
        yield* proxy.setRoute({
          appId: one,
          hostnames: [],
          target: { kind: "unavailable", reason: "x" },
          rawPorts
        })
        assert.isUndefined((yield* connect(onePort)).app)
        assert.include((yield* proxy.traffic).apps.get(one)?.tcp, { open: 0, down: 1 })
        yield* proxy.removeRoute(one)
        assert.isUndefined((yield* connect(onePort)).app)
        assert.strictEqual((yield* proxy.traffic).apps.size, 0)
      }))

    test("ends what is open to an app whose microVM has ended, and nothing that waits for the next", ({
      target,
      guest,
      hold,
      ask,
      freePort,
      connect
    }, proxy) =>
      Effect.gen(function* () {
        const raw = yield* guest("raw")
        const hostPort = yield* freePort
        const up = yield* target("one")
        const rawPorts = [{ name: "one", hostPort, guestPort: raw.guestPort }]
        const route = { appId: one, hostnames: ["a.test"], rawPorts }
        yield* proxy.setRoute({ ...route, target: up })
        const request = yield* hold({ hostname: "a.test" })
        yield* connect(hostPort)
        assert.strictEqual(yield* open(proxy, one), 2)
        const sleep = yield* sleeper
        yield* proxy.setRoute({ ...route, target: sleep.target })
        const waits = yield* Effect.forkScoped(ask({ hostname: "a.test" }))
        yield* untilHeld(proxy, one, 1)

        yield* proxy.endConnections(one)
        assert.include((yield* proxy.traffic).apps.get(one), { open: 1, held: 1, unreachable: 1 })
        assert.deepStrictEqual(yield* request.finish, {
          status: 502,
          reason: "the app stopped before it answered"
        })
        yield* sleep.wakes(up)
        assert.deepStrictEqual(yield* Fiber.join(waits), { app: "one" })
        yield* untilOpen(proxy, one, 0)
        yield* proxy.endConnections(two)
      }))

    test("wakes an app for connections to its raw ports, with requests that come meanwhile", ({
      guest,
      freePort,
      connect
    }, proxy) =>
      Effect.gen(function* () {
        const { target, guestPort } = yield* guest("raw")
        const hostPort = yield* freePort
        const rawPorts = [{ name: "one", hostPort, guestPort }]
        const sleep = yield* sleeper
        yield* proxy.setRoute({ appId: one, hostnames: [], target: sleep.target, rawPorts })
        const held = yield* Effect.forkScoped(
          Effect.all([connect(hostPort), connect(hostPort)], { concurrency: "unbounded" })
        )
        yield* untilHeld(proxy, one, 2)
        const { apps, joinedWakes } = yield* proxy.traffic
        assert.include(apps.get(one), { open: 2 })
        assert.strictEqual(joinedWakes, 1)
        yield* sleep.wakes(target)
        const names = (yield* Fiber.join(held)).map(({ app }) => app)
        assert.deepStrictEqual(names, ["raw", "raw"])
        assert.strictEqual(yield* sleep.asked, 1)

        const second = yield* sleeper
        yield* proxy.setRoute({ appId: one, hostnames: [], target: second.target, rawPorts })
        yield* second.wakes({ kind: "unavailable", reason: "no room" })
        assert.isUndefined((yield* connect(hostPort)).app)
        assert.include((yield* proxy.traffic).apps.get(one)?.tcp, { relayed: 2, wakeRefused: 1 })
      }))
  })
