import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { difference, sameJson } from "../../../src/document/difference.ts"
import type { HostDesiredState } from "../../../src/document/schema.ts"
import { documents } from "./arbitraries.ts"
import { type AnyDocument, accepted, baseDocument } from "./fixtures.ts"

/** Two apps on a volume each, the second with a checkpoint and an export. */
const twoApps = (): AnyDocument => {
  const document = baseDocument()
  document.instances.push({
    ...structuredClone(document.instances[0]),
    appId: "app-2",
    volumeId: "vol-2",
    hostnames: []
  })
  document.checkpoints.push({ checkpointId: "c-2", volumeId: "vol-2", desiredState: "present" })
  document.exports.push({
    exportId: "e-2",
    appId: "app-2",
    volumeId: "vol-2",
    objectKey: "k",
    desiredState: "present"
  })
  return document
}

const touched = (before: HostDesiredState | undefined, after: HostDesiredState) => {
  const { appIds, checkpointIds, exportIds, volumeIds } = difference(before, after)
  return [...appIds, ...volumeIds, ...checkpointIds, ...exportIds].map(String).sort()
}
const touchedBy = (change: (document: AnyDocument) => void) => {
  const document = twoApps()
  change(document)
  return touched(accepted(twoApps()), accepted(document))
}

describe("the difference between two documents", () => {
  it("is everything at first", () => {
    assert.deepStrictEqual(touched(undefined, accepted(twoApps())), [
      "app-1",
      "app-2",
      "c-2",
      "e-2",
      "vol-1",
      "vol-2"
    ])
  })
  it("is nothing between a document and itself, whatever the order of its keys", () => {
    assert.isEmpty(touchedBy(() => {}))
    assert.isEmpty(
      touchedBy((d) => {
        d.instances[0] = Object.fromEntries(Object.entries(d.instances[0]).reverse())
      })
    )
    fc.assert(fc.property(documents, (d) => assert.isEmpty(touched(accepted(d), accepted(d)))))
  })
  it("is one app when its instance changed, came or went", () => {
    assert.deepStrictEqual(
      touchedBy((d) => {
        d.instances[0].config.command.environment.NEW = "1"
      }),
      ["app-1"]
    )
    assert.deepStrictEqual(
      touchedBy((d) => d.instances.shift()),
      ["app-1"]
    )
    assert.deepStrictEqual(
      touchedBy((d) => {
        d.volumes.push({ ...d.volumes[0], volumeId: "vol-3", appId: "app-3" })
        d.instances.push({ ...d.instances[1], appId: "app-3", volumeId: "vol-3" })
      }),
      ["app-3", "vol-3"]
    )
  })
  it("is a volume and its app when the volume changed", () => {
    assert.deepStrictEqual(
      touchedBy((d) => {
        d.volumes[1].sizeBytes += 4096
      }),
      ["app-2", "vol-2"]
    )
  })
  it("is both apps when a volume goes from one to the other", () => {
    assert.deepStrictEqual(
      touchedBy((d) => {
        d.instances.pop()
        d.exports.pop()
        d.volumes[1].appId = "app-1"
      }),
      ["app-1", "app-2", "e-2", "vol-2"]
    )
  })
  it("is a checkpoint or an export alone when only that changed", () => {
    assert.deepStrictEqual(
      touchedBy((d) => {
        d.checkpoints[0].desiredState = "absent"
        d.exports[0].environment = { A: "1" }
      }),
      ["c-2", "e-2"]
    )
  })
  it("does not count the order of things, nor what is not known", () => {
    assert.isEmpty(
      touchedBy((d) => {
        d.instances.reverse()
        d.volumes.reverse()
        d.instances[0].somethingNewer = [1]
        d.revision = "r2"
      })
    )
  })
  it("takes two JSON values for the same when they are written the same", () => {
    const sorted = (value: unknown): unknown => {
      if (Array.isArray(value)) return ["list", ...value.map(sorted)]
      if (typeof value !== "object" || value === null) return value
      const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
      return ["object", ...members.map(([key, member]) => [key, sorted(member)])]
    }
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 3 }), fc.jsonValue({ maxDepth: 3 }), (a, b) => {
        assert.isTrue(sameJson(a, structuredClone(a)))
        assert.strictEqual(sameJson(a, b), JSON.stringify(sorted(a)) === JSON.stringify(sorted(b)))
      })
    )
  })
})
