import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { VolumeId } from "../../../src/document/schema.ts"
import { VolumeError } from "../../../src/services/VolumeBackend.ts"
import { type InstanceChanges, rawDocument, rawInstance, rawVolume, volumeOf } from "./documents.ts"
import { type Host, startHost } from "./harness.ts"

const MIB = 2 ** 20
const small = 64 * MIB
const large = 128 * MIB

const sized = (sizeBytes: number, changes: InstanceChanges = {}) =>
  rawDocument({
    volumes: [rawVolume("app-1", { sizeBytes })],
    instances: [rawInstance("app-1", changes)]
  })

const hostWith = Effect.fnUntraced(function* (sizeBytes: number, changes: InstanceChanges = {}) {
  const host = yield* startHost()
  yield* host.put(sized(sizeBytes, changes))
  yield* host.untilState("app-1", changes.desiredState === "stopped" ? "stopped" : "running")
  return host
})

const volumeIn = (host: Host) => host.report()?.volumes[0]
const deviceOf = (host: Host) => host.volumes.volumes.get(volumeOf("app-1") as VolumeId)?.sizeBytes
const untilMessage = (host: Host, text: string) =>
  host.until(`the volume says ${text}`, () => volumeIn(host)?.message?.includes(text) === true)

describe("a volume that the document makes larger", () => {
  it.effect("waits for its app's next boot while a microVM uses it, and says so", () =>
    Effect.gen(function* () {
      const host = yield* hostWith(small)
      yield* host.put(sized(large))
      yield* untilMessage(host, `grows from ${small} to ${large} bytes when its app boots next`)
      assert.strictEqual(volumeIn(host)?.state, "ready")
      assert.strictEqual(volumeIn(host)?.sizeBytes, small)
      assert.strictEqual(deviceOf(host), small)
      yield* host.put(sized(large, { deploymentId: "dep-2" }))
      yield* host.untilDeployed("app-1", "dep-2")
      assert.strictEqual(deviceOf(host), large)
      assert.strictEqual(volumeIn(host)?.sizeBytes, large)
      assert.isUndefined(volumeIn(host)?.message)
      assert.strictEqual(host.volumes.formattings, 1)
    })
  )

  it.effect("has grown before the microVM is booted that takes the place of one that died", () =>
    Effect.gen(function* () {
      const host = yield* hostWith(small)
      yield* host.put(sized(large))
      yield* untilMessage(host, "when its app boots next")
      yield* host.machine.end("app-1", { kind: "killed", signal: "SIGKILL" })
      yield* host.until("it is booted again", () => host.machine.callsOf("boot", "app-1").length === 2)
      assert.strictEqual(deviceOf(host), large)
    })
  )

  it.effect("grows at once while no microVM uses it", () =>
    Effect.gen(function* () {
      const host = yield* hostWith(small, { desiredState: "stopped" })
      yield* host.put(sized(large, { desiredState: "stopped" }))
      yield* host.until("it has grown", () => volumeIn(host)?.sizeBytes === large)
      assert.strictEqual(deviceOf(host), large)
    })
  )

  it.effect("fails alone when it cannot grow, and fails no more once the document asks for what it is", () =>
    Effect.gen(function* () {
      const host = yield* hostWith(small, { desiredState: "stopped" })
      const full = (volumeId: string) =>
        new VolumeError({ volumeId, operation: "grown", reason: "the disk is full" })
      host.volumes.script.fail("provision", full)
      yield* host.put(sized(large))
      yield* untilMessage(host, "the disk is full")
      assert.strictEqual(volumeIn(host)?.state, "failed")
      yield* host.untilState("app-1", "running")
      yield* host.put(sized(small))
      yield* host.until("it is as asked", () => volumeIn(host)?.state === "ready")
      assert.isUndefined(volumeIn(host)?.message)
    })
  )
})

describe("a volume that the document makes smaller", () => {
  it.effect("is refused with both sizes, while its app goes on", () =>
    Effect.gen(function* () {
      const host = yield* hostWith(large)
      const machineId = host.machine.machineOf("app-1")?.record.machineId
      yield* host.put(sized(small))
      yield* untilMessage(host, `keeps its ${large} bytes: the document asks for ${small}`)
      assert.strictEqual(volumeIn(host)?.state, "failed")
      assert.strictEqual(volumeIn(host)?.sizeBytes, large)
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      assert.strictEqual(host.machine.machineOf("app-1")?.record.machineId, machineId)
      yield* host.put(sized(large))
      yield* host.until("it is as asked", () => volumeIn(host)?.state === "ready")
      assert.strictEqual(host.machine.machineOf("app-1")?.record.machineId, machineId)
    })
  )

  it.effect("keeps its app from no start", () =>
    Effect.gen(function* () {
      const host = yield* hostWith(large, { desiredState: "stopped" })
      yield* host.put(sized(small))
      yield* host.untilState("app-1", "running")
      yield* untilMessage(host, "a volume never shrinks")
      assert.strictEqual(deviceOf(host), large)
    })
  )

  it.effect("is deleted when it is marked absent, whatever its size", () =>
    Effect.gen(function* () {
      const host = yield* hostWith(large, { desiredState: "stopped" })
      yield* host.put(
        rawDocument({ volumes: [rawVolume("app-1", { sizeBytes: small, desiredState: "absent" })] })
      )
      yield* host.until("it is deleted", () => volumeIn(host)?.state === "deleted")
    })
  )
})
