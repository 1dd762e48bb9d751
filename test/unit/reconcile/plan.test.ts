import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import type { DesiredVolume, VolumeId } from "../../../src/document/schema.ts"
import { type AppFacts, type Plan, plan, stillWanted, type VolumeFacts } from "../../../src/reconcile/plan.ts"
import type { AppRecord } from "../../../src/services/HostState.ts"
import { instance, volume } from "./documents.ts"

const app = instance("app-1")
const vol = volume("app-1")
const record: AppRecord = { appId: app.appId, slot: 4, attempts: 0, restartCount: 0 }
const booted: AppRecord = { ...record, instance: app, attempts: 1 }

const known = (
  wanted: DesiredVolume,
  state: "ready" | "provisioning" | "deleted" = "ready"
): VolumeFacts => ({
  record: { volumeId: wanted.volumeId, appId: wanted.appId, sizeBytes: wanted.sizeBytes, state },
  failure: undefined
})
const volumes = (...facts: ReadonlyArray<VolumeFacts>): ReadonlyMap<VolumeId, VolumeFacts> =>
  new Map(facts.map((fact) => [fact.record?.volumeId ?? vol.volumeId, fact]))

const steady: AppFacts = {
  now: 1_000_000,
  instance: app,
  desiredVolumes: [vol],
  volumes: volumes(known(vol)),
  record: booted,
  machineUp: true,
  strayMachine: false,
  refusal: undefined,
  slotRetryAt: undefined,
  wakeWanted: false,
  sleepDue: undefined,
  replacement: undefined
}
const next = (facts: Partial<AppFacts>): Plan => plan({ ...steady, ...facts })
const kind = (facts: Partial<AppFacts>): string => {
  const planned = next(facts)
  return planned.kind === "step" ? planned.step.kind : planned.kind
}

describe("the planner", () => {
  it("leaves an app alone that is as the document says", () => {
    assert.deepStrictEqual(next({}), { kind: "wait", until: undefined })
  })

  it("makes the volume first, then takes a slot, then starts", () => {
    const fresh = { machineUp: false, record: undefined, volumes: volumes() }
    assert.strictEqual(kind(fresh), "provision-volume")
    assert.strictEqual(kind({ ...fresh, volumes: volumes(known(vol)) }), "claim-slot")
    assert.strictEqual(kind({ ...fresh, volumes: volumes(known(vol)), record }), "start")
  })

  it("makes a volume anew that was half made when the daemon died", () => {
    assert.strictEqual(
      kind({ machineUp: false, volumes: volumes(known(vol, "provisioning")) }),
      "provision-volume"
    )
  })

  it("replaces a microVM when deploymentId changes, and for nothing else", () => {
    const release = instance("app-1", { deploymentId: "dep-2" })
    assert.strictEqual(kind({ instance: release }), "fetch-layers")
    const fetched = { deploymentId: "dep-2", failure: undefined }
    assert.strictEqual(kind({ instance: release, replacement: fetched }), "stop")
    assert.strictEqual(kind({ instance: instance("app-1", { config: { httpPort: 8080 } }) }), "wait")
    assert.strictEqual(kind({ instance: instance("app-1", { hostnames: [] }) }), "wait")
  })

  it("stops what is dropped or to be stopped, and says why", () => {
    assert.deepStrictEqual(next({ instance: undefined }), {
      kind: "step",
      step: { kind: "stop", reason: "not-desired" }
    })
    assert.deepStrictEqual(next({ instance: instance("app-1", { desiredState: "stopped" }) }), {
      kind: "step",
      step: { kind: "stop", reason: "desired-stopped" }
    })
  })

  it("keeps slot and volume of an app whose instance was dropped, and gives the slot up with the volume", () => {
    const dropped = { instance: undefined, machineUp: false }
    assert.strictEqual(kind(dropped), "retire")
    assert.strictEqual(kind({ ...dropped, record }), "wait")
    const absent = volume("app-1", { desiredState: "absent" })
    assert.strictEqual(kind({ ...dropped, record, desiredVolumes: [absent] }), "delete-volume")
    const deleted = volumes(known(vol, "deleted"))
    assert.strictEqual(kind({ ...dropped, record, desiredVolumes: [absent], volumes: deleted }), "release")
    assert.strictEqual(
      kind({ ...dropped, record: undefined, desiredVolumes: [absent], volumes: deleted }),
      "wait"
    )
    assert.strictEqual(
      kind({ ...dropped, record: undefined, desiredVolumes: [], volumes: deleted }),
      "forget-volume"
    )
    assert.strictEqual(kind({ ...dropped, record: undefined, desiredVolumes: [], volumes: volumes() }), "end")
  })

  it("gives the slot up but keeps the data of a volume that the document no longer names", () => {
    const unnamed = { instance: undefined, machineUp: false, desiredVolumes: [] }
    assert.strictEqual(kind({ ...unnamed, record }), "release")
    assert.strictEqual(kind({ ...unnamed, record: undefined }), "wait")
  })

  it("never deletes a volume that its instance still names, or that a microVM has open", () => {
    const absent = volume("app-1", { desiredState: "absent" })
    assert.strictEqual(kind({ desiredVolumes: [absent], machineUp: false, refusal: "kept" }), "wait")
    assert.notStrictEqual(kind({ desiredVolumes: [absent], instance: undefined }), "delete-volume")
  })

  it("deletes at once what could not be made: a failure to make it is none to delete it", () => {
    const failure = { reason: "the disk is full", retryAt: steady.now + 5, wanted: vol }
    const half = { ...known(vol, "provisioning"), failure }
    const dropped = { instance: undefined, record: undefined, machineUp: false, volumes: volumes(half) }
    assert.strictEqual(kind({ ...dropped, desiredVolumes: [vol] }), "wait")
    const absent = volume("app-1", { desiredState: "absent" })
    assert.strictEqual(kind({ ...dropped, desiredVolumes: [absent] }), "delete-volume")
  })

  it("starts a failed app again when its backoff is over, and not before", () => {
    const failure = { reason: "no", at: steady.now - 999, deploymentId: app.deploymentId }
    assert.deepStrictEqual(next({ machineUp: false, record: { ...booted, failure } }), {
      kind: "wait",
      until: steady.now + 1
    })
    assert.strictEqual(
      kind({ machineUp: false, record: { ...booted, failure: { ...failure, at: steady.now - 1000 } } }),
      "start"
    )
  })

  it("starts an app no more whose restarts are used up, until there is a new deployment", () => {
    const failure = { reason: "no", at: 0, deploymentId: app.deploymentId }
    const spent = { machineUp: false, record: { ...booted, attempts: 4, failure } }
    assert.strictEqual(kind(spent), "wait")
    assert.strictEqual(kind({ ...spent, instance: instance("app-1", { deploymentId: "dep-2" }) }), "start")
  })

  it("tries nothing that the host refuses, and counts nothing", () => {
    assert.strictEqual(kind({ machineUp: false, record: undefined, refusal: "no [proxy.http]" }), "wait")
  })

  it("replaces no release that serves by one that the host refuses", () => {
    const next = instance("app-1", { deploymentId: "dep-2" })
    assert.strictEqual(kind({ instance: next, refusal: "too many processors" }), "wait")
    assert.notStrictEqual(kind({ instance: next }), "wait")
  })

  it("leaves a running app alone although its second volume fails", () => {
    const second = volume("app-1", { volumeId: "second" })
    const failing = {
      record: undefined,
      failure: { reason: "full", retryAt: steady.now + 5, wanted: second }
    }
    const facts = {
      desiredVolumes: [vol, second],
      volumes: new Map([...volumes(known(vol)), [second.volumeId, failing]])
    }
    assert.deepStrictEqual(next(facts), { kind: "wait", until: steady.now + 5 })
  })

  it("always says something, and never starts a second microVM beside one that is up", () => {
    const states = fc.constantFrom("running", "on-request", "stopped", undefined)
    const volumeState = fc.constantFrom("ready", "provisioning", "deleting", "deleted", undefined)
    fc.assert(
      fc.property(
        states,
        volumeState,
        fc.constantFrom("present", "absent", undefined),
        fc.boolean(),
        fc.boolean(),
        fc.nat(6),
        (desiredState, state, presence, up, hasRecord, attempts) => {
          const wanted = presence === undefined ? [] : [volume("app-1", { desiredState: presence })]
          const facts: AppFacts = {
            ...steady,
            instance: desiredState === undefined ? undefined : instance("app-1", { desiredState }),
            desiredVolumes: wanted,
            volumes:
              state === undefined
                ? new Map()
                : new Map([[vol.volumeId, { record: { ...vol, state }, failure: undefined }]]),
            record: hasRecord || up ? { ...booted, attempts } : undefined,
            machineUp: up
          }
          const planned = plan(facts)
          if (planned.kind !== "step") return
          assert.isFalse(up && (planned.step.kind === "start" || planned.step.kind === "release"))
          assert.isTrue(stillWanted(planned.step, facts))
        }
      )
    )
  })
})

describe("a step that is under way", () => {
  const start = { kind: "start", instance: app, slot: 4 } as const

  it("is carried on while the document asks for the same deployment", () => {
    assert.isTrue(stillWanted(start, { ...steady, instance: instance("app-1", { hostnames: [] }) }))
  })

  it("is given up when the document asks for another deployment, to stop, or for nothing", () => {
    assert.isFalse(stillWanted(start, { ...steady, instance: instance("app-1", { deploymentId: "dep-2" }) }))
    assert.isFalse(
      stillWanted(start, { ...steady, instance: instance("app-1", { desiredState: "stopped" }) })
    )
    assert.isFalse(stillWanted(start, { ...steady, instance: undefined }))
  })

  it("is never given up when it stops something", () => {
    assert.isTrue(stillWanted({ kind: "stop", reason: "superseded" }, steady))
  })
})
