import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { MAX_MESSAGE } from "../../../src/report/schema.ts"
import { LayerUnusable } from "../../../src/services/LayerImages.ts"
import { digest, documentOf, rawDocument, rawInstance, rawVolume, running } from "./documents.ts"
import { type Host, makeHost, startHost } from "./harness.ts"

const stepsOf = (host: Host, appId: string) =>
  ["boot", "kill", "shutdown", "attach", "detach"].map(
    (step) => host.machine.callsOf(step as "boot", appId).length
  )

describe("a document with one field that is wrong", () => {
  it.effect(
    "is refused whole: the apps go on as they were, and the report stays with the last good one",
    () =>
      Effect.gen(function* () {
        const host = yield* startHost()
        yield* host.put({ ...running("app-1", "app-2"), revision: "r1" })
        yield* host.untilRunning("app-1", "app-2")
        const accepted = host.report()?.acceptedDigest
        const steps = stepsOf(host, "app-1")
        const sleeping = { sleepWhen: { kind: "traffic-idle", timeoutMs: 60_000 } }
        yield* host.put({
          ...rawDocument({
            volumes: [rawVolume("app-1"), rawVolume("app-2")],
            instances: [
              rawInstance("app-1", { deploymentId: "dep-2" }),
              { ...rawInstance("app-2"), activation: sleeping }
            ]
          }),
          revision: "r2"
        })
        yield* host.until("the refusal is reported", () => host.report()?.message !== null)
        assert.match(host.report()?.message ?? "", /on-request/u)
        for (let look = 0; look < 20; look++) {
          yield* TestClock.adjust(250)
          assert.strictEqual(host.report()?.acceptedDigest, accepted)
          assert.strictEqual(host.report()?.acceptedRevision, "r1")
          assert.strictEqual(host.instanceOf("app-1")?.deploymentId, "dep-1")
          assert.strictEqual(host.instanceOf("app-1")?.state, "running")
          assert.strictEqual(host.routes.get("app-1")?.target.kind, "up")
        }
        assert.deepStrictEqual(stepsOf(host, "app-1"), steps)
      })
  )
})

describe("an instance that asks for what this host has not", () => {
  const port = (name: string, guestPort: number) => ({ name, guestPort })
  const refused = (
    name: string,
    config: Record<string, unknown>,
    settings: { readonly servesHttp?: boolean; readonly rawPortsPerGuest?: number },
    sentence: string,
    hostnames?: ReadonlyArray<{ readonly hostname: string; readonly kind: "platform" }>
  ) =>
    it.effect(name, () =>
      Effect.gen(function* () {
        const host = yield* startHost({ settings })
        const neighbour = rawInstance("app-2", { hostnames: [] })
        yield* host.put(
          rawDocument({
            volumes: [rawVolume("app-1"), rawVolume("app-2")],
            instances: [rawInstance("app-1", { config, hostnames: hostnames ?? [] }), neighbour]
          })
        )
        yield* host.untilState("app-2", "running")
        yield* host.untilState("app-1", "failed")
        assert.include(host.instanceOf("app-1")?.message, sentence)
        assert.isNull(host.report()?.message)
        assert.isEmpty(host.machine.callsOf("boot", "app-1"))
        assert.strictEqual(host.state.apps.get("app-1" as never)?.attempts ?? 0, 0)
      })
    )

  refused(
    "fails alone for a hostname where there is no [proxy.http]",
    {},
    { servesHttp: false },
    "the instance has hostnames, but this host has no [proxy.http]",
    [{ hostname: "app-1.example.com", kind: "platform" }]
  )
  refused(
    "fails alone for a raw port where there is no [proxy.raw]",
    { ports: [port("game", 4000)] },
    { rawPortsPerGuest: 0 },
    "no [proxy.raw]"
  )
  refused(
    "fails alone for more raw ports than proxy.raw.max_ports_per_guest, which it names",
    { ports: [port("a", 4000), port("b", 4001)] },
    { rawPortsPerGuest: 1 },
    "names 2 ports, but proxy.raw.max_ports_per_guest is 1"
  )
  refused(
    "fails alone for two raw ports of one name",
    { ports: [port("a", 4000), port("a", 4001)] },
    {},
    'two ports "a"'
  )
  refused(
    "fails alone for one guest port named twice",
    { ports: [port("a", 4000), port("b", 4000)] },
    {},
    "guest port 4000 twice"
  )
  refused(
    "fails alone for a raw port that is called http",
    { ports: [port("http", 4000)] },
    {},
    'a port "http", which is config.httpPort\'s own name'
  )
  refused(
    "fails alone for a raw port that is its httpPort",
    { ports: [port("a", 3000)] },
    {},
    "names port 3000 (a), which is config.httpPort already"
  )
})

describe("what the report says of an instance", () => {
  it.effect("is no field that nobody knows yet: they are absent, not null", () =>
    Effect.gen(function* () {
      const host = yield* startHost({ machine: { memoryMib: 640 + 256 } })
      yield* host.put(running("app-1", "app-2"))
      yield* host.untilState("app-1", "running")
      yield* host.untilState("app-2", "pending")
      const waiting = host.instanceOf("app-2") ?? {}
      for (const field of [
        "startedAt",
        "convergedAt",
        "lastRestart",
        "lastExitCode",
        "lastHealthyAt",
        "compute"
      ])
        assert.notProperty(waiting, field)
      yield* host.machine.end("app-1", { kind: "exited", code: 0 })
      yield* host.until("the exit is told", () => host.instanceOf("app-1")?.lastExitCode === 0)
    })
  )

  it.effect("is cut to what a report takes, however long the reason is", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.images.script.fail(
        "prepare",
        new LayerUnusable({
          kind: "executable",
          digest: digest("a"),
          objectKey: "server",
          reason: "very ".repeat(200)
        }),
        { subject: "server" }
      )
      yield* host.start()
      yield* host.put(running("app-1"))
      yield* host.untilState("app-1", "failed")
      const message = host.instanceOf("app-1")?.message ?? ""
      assert.isAbove(message.length, MAX_MESSAGE / 2)
      assert.isAtMost(message.length, MAX_MESSAGE)
    })
  )

  it.effect("is which layers its microVM was booted of, bottom first, and none before", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const layers = ["c", "b", "a"].map((letter) => ({
        kind: "filesystem",
        digest: digest(letter),
        objectKey: letter
      }))
      host.machine.next("boot", "app-1", { delayMs: 2000 })
      yield* host.start()
      yield* host.put(documentOf(rawInstance("app-1", { layers })))
      yield* host.machine.awaitCall("boot", "app-1")
      yield* host.until("it is reported", () => host.instanceOf("app-1") !== undefined)
      assert.isEmpty(host.instanceOf("app-1")?.layerDigests ?? [])
      yield* host.untilState("app-1", "running")
      assert.deepStrictEqual(host.instanceOf("app-1")?.layerDigests, ["c", "b", "a"].map(digest))
    })
  )

  it.effect(
    "is when it was first as asked: kept whatever happens later, until it is asked for something else",
    () =>
      Effect.gen(function* () {
        const host = yield* makeHost()
        const asked = (changes: Parameters<typeof rawInstance>[1]) =>
          documentOf(rawInstance("app-1", changes))
        yield* host.start()
        yield* host.put(asked({}))
        yield* host.untilState("app-1", "starting")
        assert.notProperty(host.instanceOf("app-1") ?? {}, "convergedAt")
        yield* host.untilState("app-1", "running")
        const first = host.instanceOf("app-1")?.convergedAt
        assert.isDefined(first)

        yield* host.machine.end("app-1", { kind: "killed", signal: "SIGKILL" })
        yield* host.until("it is down", () => host.instanceOf("app-1")?.state !== "running")
        assert.strictEqual(host.instanceOf("app-1")?.convergedAt, first)
        yield* host.untilState("app-1", "running")
        yield* host.put(asked({ hostnames: [] }))
        yield* host.until(
          "the hostname is gone",
          () => !host.routes.has("app-1") || host.routes.get("app-1")?.hostnames.length === 0
        )
        assert.strictEqual(host.instanceOf("app-1")?.convergedAt, first)

        yield* host.put(asked({ desiredState: "stopped" }))
        yield* host.untilState("app-1", "stopped")
        const second = host.instanceOf("app-1")?.convergedAt
        assert.isDefined(second)
        assert.notStrictEqual(second, first)
      })
  )
})
