/** What every proxy must do. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, type Layer, type Scope } from "effect"
import { AppId } from "../../src/document/schema.ts"
import { Proxy, type RouteTarget } from "../../src/services/Proxy.ts"

/** What a caller gets: the name of the app that answered, or the proxy's own status and sentence. */
export type ProxyAnswer = { readonly app: string } | { readonly status: number; readonly reason: string }

export type ProxyAddress = { readonly hostname: string } | { readonly hostPort: number }

/** A request that is on its way to the app. */
export interface HeldRequest {
  /** Lets the app answer, and gives the answer. */
  readonly finish: Effect.Effect<ProxyAnswer>
}

export interface ProxyHarness {
  readonly layer: Layer.Layer<Proxy, unknown>
  /** A target whose answers carry the name. */
  readonly target: (name: string) => Effect.Effect<RouteTarget, never, Scope.Scope>
  /** A target where nothing listens. */
  readonly deafTarget: RouteTarget
  /** A port that is free on this machine. */
  readonly freePort: Effect.Effect<number>
  readonly ask: (address: ProxyAddress) => Effect.Effect<ProxyAnswer, never, Proxy>
  /** A request whose answer the app keeps back. Succeeds when the app has it. */
  readonly hold: (address: ProxyAddress) => Effect.Effect<HeldRequest, never, Proxy | Scope.Scope>
}

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
        const { outcomes, apps } = yield* proxy.traffic
        assert.deepStrictEqual(outcomes, {
          served: 2,
          noSuchHost: 1,
          wrongHost: 0,
          refused: 1,
          unreachable: 1
        })
        assert.deepStrictEqual(apps.get(one), {
          open: 0,
          routed: 3,
          answers: { 1: 0, 2: 2, 3: 0, 4: 0, 5: 0 }
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
  })
