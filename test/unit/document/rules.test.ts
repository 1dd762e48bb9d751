import { assert, describe, it } from "@effect/vitest"
import { type AnyDocument, baseDocument, issuesOf, jsonBytes } from "./fixtures.ts"

const pathsAfter = (change: (document: AnyDocument) => void): ReadonlyArray<string> => {
  const document = baseDocument()
  change(document)
  return issuesOf(jsonBytes(document)).map(({ path }) => path)
}

const instance = (appId: string, volumeId: string, ...hostnames: ReadonlyArray<string>) => ({
  ...baseDocument().instances[0],
  appId,
  volumeId,
  hostnames: hostnames.map((hostname) => ({ hostname, kind: "custom" }))
})
const checkpoint = (checkpointId: string, volumeId: string) => ({
  checkpointId,
  volumeId,
  desiredState: "present"
})
const exported = (exportId: string, appId: string, volumeId: string) => ({
  exportId,
  appId,
  volumeId,
  objectKey: "k",
  desiredState: "present"
})

describe("what the parts of a document mean to each other", () => {
  it("a volume, an app, a checkpoint and an export are named once", () => {
    const paths = pathsAfter((d) => {
      d.volumes.push({ ...d.volumes[0] })
      d.instances.push(instance("app-1", "vol-1"))
      d.checkpoints.push(checkpoint("c", "vol-1"), checkpoint("c", "vol-2"))
      d.exports.push(exported("e", "app-1", "vol-1"), exported("e", "app-2", "vol-2"))
    })
    assert.sameMembers(
      [...paths],
      ["/volumes/2/volumeId", "/instances/1/appId", "/checkpoints/1/checkpointId", "/exports/1/exportId"]
    )
  })
  it("a hostname is named once, in one app as in two", () => {
    const paths = pathsAfter((d) => {
      d.instances = [
        instance("app-1", "vol-1", "a.example.com", "b.example.com", "a.example.com"),
        instance("app-2", "vol-2", "b.example.com")
      ]
    })
    assert.sameMembers([...paths], ["/instances/0/hostnames/2/hostname", "/instances/1/hostnames/0/hostname"])
  })
  it("an instance runs on a volume that the document names, and that is its app's", () => {
    assert.deepStrictEqual(
      pathsAfter((d) => {
        d.instances[0].volumeId = "vol-2"
      }),
      ["/instances/0/volumeId"]
    )
    assert.deepStrictEqual(
      pathsAfter((d) => {
        d.instances[0].volumeId = "vol-3"
      }),
      ["/instances/0/volumeId"]
    )
  })
  it("an export of another app's volume is refused", () => {
    assert.deepStrictEqual(
      pathsAfter((d) => {
        d.exports.push(exported("e", "app-1", "vol-2"))
      }),
      ["/exports/0/volumeId"]
    )
  })
  it("a checkpoint or an export of a volume that is not named is accepted: it fails by itself", () => {
    assert.isEmpty(
      pathsAfter((d) => {
        d.checkpoints.push(checkpoint("c", "vol-9"))
        d.exports.push(exported("e", "app-9", "vol-9"))
      })
    )
  })
  it("an app may have two volumes, and two apps without hostnames are no clash", () => {
    assert.isEmpty(
      pathsAfter((d) => {
        d.volumes[1].appId = "app-1"
      })
    )
  })
  it("activation beside idleTimeoutMs is refused at the instance; null names neither", () => {
    const never = { sleepWhen: { kind: "never" } }
    const both = (activation: unknown, idleTimeoutMs: unknown) =>
      pathsAfter((d) => Object.assign(d.instances[0], { activation, idleTimeoutMs }))
    assert.deepStrictEqual(both(never, 60_000), ["/instances/0"])
    assert.isEmpty(both(null, 60_000))
    assert.isEmpty(both(never, null))
  })
  it("only an on-request instance sleeps", () => {
    const sleepWhen = { kind: "traffic-idle", timeoutMs: 60_000 }
    const of = (desiredState: string, sleep: unknown) =>
      pathsAfter((d) => Object.assign(d.instances[0], { desiredState, activation: { sleepWhen: sleep } }))
    assert.isEmpty(of("on-request", sleepWhen))
    assert.deepStrictEqual(of("running", sleepWhen), ["/instances/0/activation/sleepWhen"])
    assert.deepStrictEqual(of("stopped", sleepWhen), ["/instances/0/activation/sleepWhen"])
    assert.isEmpty(of("stopped", { kind: "never" }))
  })
  it("the rules are told beside what the schema finds in the same things and elsewhere", () => {
    const paths = pathsAfter((d) => {
      d.checkpoints = null
      d.instances.push({ appId: "app-1", volumeId: "vol-9", hostnames: [{ hostname: "app-1.example.com" }] })
    })
    assert.includeMembers(
      [...paths],
      [
        "/checkpoints",
        "/instances/1/appId",
        "/instances/1/volumeId",
        "/instances/1/hostnames/0/hostname",
        "/instances/1/hostnames/0/kind",
        "/instances/1/config"
      ]
    )
  })
  it("without readable volumes nothing is said of references to them", () => {
    assert.deepStrictEqual(
      pathsAfter((d) => {
        d.volumes = 7
      }),
      ["/volumes"]
    )
    assert.deepStrictEqual(
      pathsAfter((d) => {
        delete d.volumes[0].volumeId
      }),
      ["/volumes/0/volumeId"]
    )
  })
  it("names that are no variable's are told beside values that are wrong", () => {
    const environment = "/instances/0/config/command/environment"
    assert.sameMembers(
      [
        ...pathsAfter((d) => {
          d.instances[0].config.command.environment = { "A-B": "v", "a/b~c": "v", C: 3, D: "fine" }
        })
      ],
      [`${environment}/A-B`, `${environment}/a~1b~0c`, `${environment}/C`]
    )
  })
  it("a variable may be called __proto__, and is kept", () => {
    const document = baseDocument()
    const text = JSON.stringify(document).replace('"DATABASE_URL"', '"__proto__"')
    assert.include(text, "__proto__")
    assert.isEmpty(issuesOf(new TextEncoder().encode(text)))
  })
})
