import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import { Result, Schema } from "effect"
import fc from "fast-check"
import { reportedJsonSchema } from "../../../src/report/json-schema.ts"
import { HostReport, MAX_MESSAGE } from "../../../src/report/schema.ts"
import { mutated, mutations } from "../document/arbitraries.ts"

const accepts = new Ajv2020({ strict: true, strictTypes: false, strictRequired: false }).compile(
  reportedJsonSchema()
)
const decode = Schema.decodeUnknownResult(HostReport)

const at = "2026-11-30T12:00:00.000Z"

/** A report in which every field is named. */
const fullReport = {
  hostId: "host-1",
  reportedAt: at,
  state: "ready",
  capacity: { vcpuCount: 4, memoryMib: 8192, cacheBytes: 1_000_000 },
  allocatable: { vcpuCount: 3, memoryMib: 7936, cacheBytes: 900_000 },
  versions: {
    agent: "0.1.0",
    guestImage: "0123456789abcdef",
    zerofs: "none",
    firecracker: "none",
    hypervisor: "qemu 7.2.22 (TCG)"
  },
  volumes: [
    {
      volumeId: "vol-1",
      appId: "app-1",
      state: "ready",
      sizeBytes: 67_108_864,
      storagePrefix: "host-1",
      devicePath: "/dev/nbd3",
      usage: { totalBytes: 60_000_000, usedBytes: 1_000_000, measuredAt: at },
      message: "grows at the next boot"
    }
  ],
  instances: [
    {
      appId: "app-1",
      deploymentId: "dep-1",
      state: "running",
      restartCount: 1,
      hostPort: 21024,
      guestIpv4: "10.201.0.14",
      layerDigests: ["a".repeat(64)],
      lastRestart: { at, attempt: 1, budget: 5, exit: { code: 3 }, reason: "exited", backoffMs: 500 },
      startedAt: at,
      convergedAt: at,
      lastHealthyAt: at,
      lastExitCode: 0,
      compute: { memoryTotalBytes: 250_000_000, memoryUsedBytes: 10_000_000, cpuShare: 0.25, measuredAt: at },
      meters: {
        runningMs: 1,
        idleMs: 2,
        cpuMs: 3,
        rxBytes: 4,
        txBytes: 5,
        diskProvisionedMibSeconds: 6,
        diskUsedMibSeconds: 7
      },
      message: "fine"
    },
    { appId: "app-2", deploymentId: "dep-1", state: "failed", restartCount: 0 }
  ],
  checkpoints: [
    { checkpointId: "c", volumeId: "vol-1", state: "ready", reference: "c", readyAt: at, message: "cut" }
  ],
  exports: [
    { exportId: "e", state: "ready", checkpointId: "export-e", sizeBytes: 9, readyAt: at, message: "put" }
  ],
  acceptedDigest: "b".repeat(64),
  acceptedRevision: "deploy-4821",
  message: null
}

describe("the schema of reported.json", () => {
  it("takes a report in which every field is named, and one in which nothing is known yet", () => {
    assert.isTrue(Result.isSuccess(decode(fullReport)))
    assert.isTrue(accepts(fullReport), JSON.stringify(accepts.errors))
    const {
      acceptedDigest: _digest,
      acceptedRevision: _revision,
      ...unknown
    } = { ...fullReport, volumes: [], instances: [], checkpoints: [], exports: [] }
    assert.isTrue(accepts(unknown) && Result.isSuccess(decode(unknown)))
  })
  it("names every field that a report may have", () => {
    // Decoding drops what the schema does not name.
    assert.deepStrictEqual(Result.getOrThrow(decode(fullReport)) as unknown, fullReport)
  })
  it("takes what the decoder takes, and refuses what it refuses", () => {
    fc.assert(
      fc.property(mutations, (changes) => {
        const report = mutated(fullReport, changes)
        assert.strictEqual(accepts(report), Result.isSuccess(decode(report)), JSON.stringify(accepts.errors))
      }),
      { numRuns: 2000 }
    )
  })
  it(`refuses a sentence of more than ${MAX_MESSAGE} characters, and a time that is none`, () => {
    const takes = (report: unknown) => Result.isSuccess(decode(report))
    assert.isTrue(takes({ ...fullReport, message: "😀".repeat(MAX_MESSAGE) }))
    assert.isFalse(takes({ ...fullReport, message: "x".repeat(MAX_MESSAGE + 1) }))
    assert.isFalse(takes({ ...fullReport, reportedAt: "yesterday" }))
    assert.isFalse(takes({ ...fullReport, message: undefined }))
  })
})

describe("docs/report.md", () => {
  it("names every field of the report", () => {
    const text = readFileSync(fileURLToPath(new URL("../../../docs/report.md", import.meta.url)), "utf8")
    const namesIn = (schema: unknown): ReadonlyArray<string> => {
      if (typeof schema !== "object" || schema === null) return []
      const { properties, ...rest } = schema as { readonly properties?: object }
      return [
        ...Object.keys(properties ?? {}),
        ...Object.values(properties ?? {}).flatMap(namesIn),
        ...Object.values(rest).flatMap(namesIn)
      ]
    }
    const names = new Set(namesIn(reportedJsonSchema()))
    assert.isAbove(names.size, 50)
    assert.deepStrictEqual(
      [...names].filter((name) => !text.includes(`\`${name}\``)),
      []
    )
  })
})
