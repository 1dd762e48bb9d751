/** What the report says of volumes that nobody uses, or not yet, and of apps that got no slot. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { AppId, type VolumeId } from "../../../src/document/schema.ts"
import { VolumeError } from "../../../src/services/VolumeBackend.ts"
import { documentOf, rawDocument, rawInstance, rawVolume, running, volumeOf } from "./documents.ts"
import { type Host, hostRunning, makeHost, startHost } from "./harness.ts"

const told = (host: Host, volumeId: string) =>
  host.report()?.volumes.find((volume) => volume.volumeId === volumeId)

const untilTold = (host: Host, volumeId: string, message: string | undefined) =>
  host.until(`${volumeId} says ${message}`, () => told(host, volumeId)?.message === message)

const broken = (volumeId: string) =>
  new VolumeError({ volumeId, operation: "created", reason: "the disk is full" })

describe("a volume that was never made", () => {
  it.effect("is forgotten with its app when the document names it no more", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.volumes.script.fail("provision", broken)
      yield* host.start()
      yield* host.put(running("app-1"))
      yield* host.until("it has failed", () => told(host, volumeOf("app-1"))?.state === "failed")
      yield* host.put(rawDocument())
      yield* host.until("nothing is told of it", () => host.report()?.volumes.length === 0)
      yield* host.until(
        "its notes are gone",
        () => host.state.volumes.size === 0 && host.state.apps.size === 0
      )
      host.volumes.script.clear()
      // What was never made belongs to nobody.
      const volumes = [rawVolume("app-2", { volumeId: volumeOf("app-1") })]
      const instances = [rawInstance("app-2", { volumeId: volumeOf("app-1") })]
      yield* host.put(rawDocument({ volumes, instances }))
      yield* host.untilState("app-2", "running")
    })
  )

  it.effect("is kept all the same when it was made and could not be noted", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      host.volumes.script.fail("provision", broken, { at: "after" })
      yield* host.start()
      yield* host.put(running("app-1"))
      yield* host.until("it has failed", () => told(host, volumeOf("app-1"))?.state === "failed")
      yield* host.put(rawDocument())
      yield* host.until("it is kept", () => told(host, volumeOf("app-1"))?.state === "detached")
      assert.isTrue(host.volumes.volumes.has(volumeOf("app-1") as VolumeId))
    })
  )

  it.effect("takes nothing from the app whose volume it is, when it was asked for under another", () =>
    Effect.gen(function* () {
      const host = yield* hostRunning("app-1")
      const stolen = rawVolume("app-2", { volumeId: volumeOf("app-1") })
      yield* host.put(rawDocument({ volumes: [stolen] }))
      yield* host.until(
        "it is refused",
        () =>
          host.report()?.volumes.some(({ appId, state }) => appId === "app-2" && state === "failed") === true
      )
      yield* host.put(rawDocument())
      yield* host.until("the thief is forgotten", () => host.report()?.volumes.length === 1)
      assert.deepInclude(told(host, volumeOf("app-1")), { appId: AppId.make("app-1"), state: "detached" })
      yield* host.run("app-1")
      assert.strictEqual(host.volumes.formattings, 1)
    })
  )
})

describe("a volume that the document puts in the place of another", () => {
  const first = volumeOf("app-1")
  const sleeper = (changes: Record<string, unknown> = {}, volumes = [first, "second"]) =>
    rawDocument({
      volumes: volumes.map((volumeId) => rawVolume("app-1", { volumeId })),
      instances: [
        rawInstance("app-1", {
          desiredState: "on-request",
          activation: { sleepWhen: { kind: "traffic-idle", timeoutMs: 60_000 } },
          ...changes
        })
      ]
    })

  it.effect("is not used until the next deployment, while the app sleeps on the other, which says so", () =>
    Effect.gen(function* () {
      const host = yield* startHost()
      yield* host.put(sleeper())
      yield* host.untilState("app-1", "idle")
      yield* untilTold(host, first, undefined)
      yield* untilTold(host, "second", `not used: the instance of app-1 names volume ${first}`)
      yield* host.put(sleeper({ volumeId: "second" }))
      yield* untilTold(
        host,
        first,
        "in use until the next deploymentId: app-1 booted with it; the document now names volume second"
      )
      yield* untilTold(
        host,
        "second",
        `not used until the next deploymentId: app-1 booted with volume ${first}`
      )
      yield* host.put(sleeper({ volumeId: "second" }, ["second"]))
      yield* host.until("the first is detached", () => told(host, first)?.state === "detached")
      assert.match(told(host, first)?.message ?? "", /^in use until the next deploymentId/u)
      yield* host.put(sleeper({ volumeId: "second", deploymentId: "dep-2" }))
      yield* host.untilState("app-1", "running")
      yield* untilTold(host, first, "not used: the instance of app-1 names volume second")
      yield* untilTold(host, "second", undefined)
    })
  )
})

describe("an app that is to be stopped", () => {
  it.effect("is stopped although no slot is left for it, which it says", () =>
    Effect.gen(function* () {
      const host = yield* startHost({ settings: { maxApps: 1 } })
      yield* host.run("app-1")
      const both = (desiredState: "running" | "stopped") =>
        documentOf(rawInstance("app-1"), rawInstance("app-2", { desiredState }))
      yield* host.put(both("stopped"))
      yield* host.untilState("app-2", "stopped")
      assert.strictEqual(host.instanceOf("app-2")?.message, "no slot is left: all 1 of max_apps are taken")
      yield* host.put(both("running"))
      yield* host.untilState("app-2", "failed")
    })
  )
})
