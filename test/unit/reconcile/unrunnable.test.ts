import { assert, describe, it } from "@effect/vitest"
import { checkDocument, MAX_WARNINGS } from "../../../src/document/decode.ts"
import type { HostDesiredState } from "../../../src/document/schema.ts"
import { foresee } from "../../../src/foresight/foresee.ts"
import { SMALLEST_MEMORY_MIB, unrunnableIn } from "../../../src/reconcile/unrunnable.ts"
import { SMALLEST_VOLUME } from "../../../src/volume/size.ts"
import { accepted, jsonBytes } from "../document/fixtures.ts"
import { type InstanceChanges, rawDocument, rawInstance, rawVolume } from "./documents.ts"

/** What a large host on which nothing runs refuses of a document. */
const refusedBy = (document: HostDesiredState): ReadonlyArray<string> =>
  foresee(
    {
      now: 0,
      document: undefined,
      records: [],
      volumes: [],
      up: new Set(),
      limits: { servesHttp: true, rawPortsPerGuest: 7, vcpuCount: 64, memoryMib: 65_536 },
      maxApps: 64
    },
    document
  ).flatMap(({ actions, appId }) =>
    actions.flatMap((action) => {
      if (action.kind === "refuse") return [`app ${appId} is not run: ${action.reason}`]
      return action.kind === "refuse-volume" ? [action.reason] : []
    })
  )

const documentWith = (changes: InstanceChanges, volume: Record<string, unknown> = {}) =>
  rawDocument({ volumes: [rawVolume("shop", volume)], instances: [rawInstance("shop", changes)] })

/** Where and what `check` warns of. */
const warnedOf = (document: unknown) =>
  checkDocument(jsonBytes(document), (decoded) => unrunnableIn(decoded, MAX_WARNINGS)).warnings

const check = {
  kind: "http",
  path: "/",
  intervalMs: 1,
  timeoutMs: 1,
  gracePeriodMs: 0,
  healthyThreshold: 1,
  unhealthyThreshold: 1
}
const command = { program: "/app/server", args: [], workingDirectory: "/app", environment: {} }
const port = (name: string, guestPort: number) => ({ name, guestPort })

const faults: ReadonlyArray<readonly [what: string, document: unknown, path: string]> = [
  [
    "no processor",
    documentWith({ config: { resources: { vcpuCount: 0, memoryMib: 256 } } }),
    "/instances/0/config/resources/vcpuCount"
  ],
  [
    "no memory",
    documentWith({ config: { resources: { vcpuCount: 1, memoryMib: 0 } } }),
    "/instances/0/config/resources/memoryMib"
  ],
  [
    "less memory than a guest takes to boot",
    documentWith({ config: { resources: { vcpuCount: 1, memoryMib: SMALLEST_MEMORY_MIB - 1 } } }),
    "/instances/0/config/resources/memoryMib"
  ],
  [
    "a port named http",
    documentWith({ config: { ports: [port("ssh", 22), port("http", 80)] } }),
    "/instances/0/config/ports/1/name"
  ],
  [
    "a port that is httpPort",
    documentWith({ config: { ports: [port("web", 3000)] } }),
    "/instances/0/config/ports/0/guestPort"
  ],
  [
    "two ports of one name",
    documentWith({ config: { ports: [port("a", 1), port("a", 2)] } }),
    "/instances/0/config/ports/1/name"
  ],
  [
    "one port twice",
    documentWith({ config: { ports: [port("a", 1), port("b", 1)] } }),
    "/instances/0/config/ports/1/guestPort"
  ],
  [
    "more ports than a slot has",
    documentWith({ config: { ports: Array.from({ length: 8 }, (_, n) => port(`p${n}`, n + 1)) } }),
    "/instances/0/config/ports"
  ],
  [
    "a health path without a slash",
    documentWith({ config: { healthCheck: { ...check, path: "health" } } }),
    "/instances/0/config/healthCheck/path"
  ],
  [
    "a threshold of 0",
    documentWith({ config: { healthCheck: { ...check, unhealthyThreshold: 0 } } }),
    "/instances/0/config/healthCheck/unhealthyThreshold"
  ],
  [
    "an argument with a NUL character",
    documentWith({ config: { command: { ...command, args: ["-v", "a\0b"] } } }),
    "/instances/0/config/command/args/1"
  ],
  [
    "a variable with a NUL character",
    documentWith({ config: { command: { ...command, environment: { KEY: "hunter2\0" } } } }),
    "/instances/0/config/command/environment/KEY"
  ],
  [
    "a reference to the hostname of an instance without one",
    documentWith({
      hostnames: [],
      config: { command: { ...command, environment: { URL: "hunter2://$NIBRUN_HOSTNAME" } } }
    }),
    "/instances/0/config/command/environment/URL"
  ],
  ["a volume that is to be absent", documentWith({}, { desiredState: "absent" }), "/instances/0/volumeId"],
  [
    "a volume without room for a filesystem",
    documentWith({}, { sizeBytes: SMALLEST_VOLUME - 1 }),
    "/volumes/0/sizeBytes"
  ]
]

describe("what no host runs", () => {
  it.each(faults)("is warned of in the words in which the host refuses it: %s", (_, document, path) => {
    const warnings = warnedOf(document)
    assert.deepStrictEqual(
      warnings.map((warning) => warning.path),
      [path]
    )
    assert.deepStrictEqual(
      warnings.map(({ message }) => message),
      refusedBy(accepted(document))
    )
    assert.notInclude(warnings[0]?.message, "hunter2")
  })

  it("is nothing of the smallest that a host runs", () => {
    const document = documentWith(
      {
        config: {
          resources: { vcpuCount: 1, memoryMib: SMALLEST_MEMORY_MIB },
          ports: [port("https", 443)]
        }
      },
      { sizeBytes: SMALLEST_VOLUME }
    )
    assert.deepStrictEqual(warnedOf(document), [])
    assert.deepStrictEqual(refusedBy(accepted(document)), [])
  })

  it("is all of it warned of, in the order of the text, where the host names the first", () => {
    const document = documentWith({
      config: { resources: { vcpuCount: 0, memoryMib: 1 }, healthCheck: { ...check, intervalMs: 0 } }
    })
    const messages = warnedOf(document).map(({ message }) => message)
    assert.lengthOf(messages, 3)
    assert.deepStrictEqual(refusedBy(accepted(document)), messages.slice(0, 1))
  })

  it("is a checkpoint under a name that exports have", () => {
    const checkpoint = (checkpointId: string, desiredState: string) => ({
      checkpointId,
      volumeId: "shop-vol",
      desiredState
    })
    const document = {
      ...documentWith({}),
      checkpoints: [
        checkpoint("export-1", "present"),
        checkpoint("export-2", "absent"),
        checkpoint("c", "present")
      ]
    }
    const [warning, ...others] = warnedOf(document)
    assert.isEmpty(others)
    assert.strictEqual(warning?.path, "/checkpoints/0/checkpointId")
    assert.match(warning?.message ?? "", /checkpoint export-1 is not cut: .*is an export's own/u)
  })

  it("is no size of a volume that goes", () => {
    const document = rawDocument({
      volumes: [rawVolume("shop", { desiredState: "absent", sizeBytes: 0 })],
      instances: []
    })
    assert.deepStrictEqual(warnedOf(document), [])
  })

  it("is told of so many apps only", () => {
    const apps = Array.from({ length: MAX_WARNINGS + 1 }, (_, n) => `app-${n}`)
    const document = rawDocument({
      volumes: apps.map((app) => rawVolume(app)),
      instances: apps.map((app) =>
        rawInstance(app, { config: { resources: { vcpuCount: 0, memoryMib: 0 } } })
      )
    })
    assert.lengthOf(warnedOf(document), MAX_WARNINGS)
  })
})
