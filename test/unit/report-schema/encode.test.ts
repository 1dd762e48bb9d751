import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import fc from "fast-check"
import type { AppId, DeploymentId, VolumeId } from "../../../src/document/schema.ts"
import { type Measured, Measurements } from "../../../src/reconcile/measurements.ts"
import type { AppStatus } from "../../../src/reconcile/status.ts"
import { buildReport, type HostStatus } from "../../../src/report/build.ts"
import { makeReportEncoder } from "../../../src/report/encode.ts"
import { HostReport, type InstanceState } from "../../../src/report/schema.ts"

const appIds = ["a", "b", "c"] as ReadonlyArray<string> as ReadonlyArray<AppId>
const volumeOf = (appId: AppId) => `${appId}-vol` as VolumeId

const statusOf = (appId: AppId, state: InstanceState | undefined, exists: boolean): AppStatus => ({
  appId,
  slot: 1,
  instance:
    state === undefined
      ? undefined
      : {
          deploymentId: "dep-1" as DeploymentId,
          state,
          message: undefined,
          slot: 1,
          layerDigests: [],
          attempts: 1,
          restartCount: 0,
          lastRestart: undefined,
          startedAt: 5,
          convergedAt: undefined,
          lastHealthyAt: undefined,
          lastExitCode: undefined,
          vcpuCount: 1
        },
  volumes: [
    { volumeId: volumeOf(appId), appId, state: "ready", sizeBytes: 2 ** 26, exists, message: undefined }
  ]
})

const hostOf = (apps: ReadonlyMap<AppId, AppStatus>, measurements: Measurements): HostStatus => ({
  now: 1_000,
  ready: true,
  inForce: undefined,
  troubles: [],
  vcpuCount: 2,
  memoryMib: 1024,
  heldMemoryMib: 0,
  disk: { totalBytes: 10, availableBytes: 5 },
  versions: { agent: "0", guestImage: "0", zerofs: "none", firecracker: "none" },
  storagePrefix: "volumes",
  apps,
  checkpoints: new Map(),
  exports: new Map(),
  measured: (appId) => measurements.of(appId)
})

describe("the report as text", () => {
  it("is the report as it is built, whatever has changed since it was written before", () => {
    const appId = fc.constantFrom(...appIds)
    const state = fc.constantFrom<InstanceState | undefined>("running", "stopped", "idle", undefined)
    const change = fc.oneof(
      fc.record({ kind: fc.constant("status" as const), appId, state, exists: fc.boolean() }),
      fc.record({ kind: fc.constant("measured" as const), appId, used: fc.nat(2 ** 20), ticks: fc.nat(100) }),
      fc.record({ kind: fc.constant("let-go" as const), appId }),
      fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(20_000) }),
      fc.record({ kind: fc.constant("named" as const), named: fc.subarray([...appIds]) })
    )
    fc.assert(
      fc.property(fc.array(change, { maxLength: 30 }), (changes) => {
        const measurements = new Measurements()
        measurements.keepOnly(new Set(appIds))
        const apps = new Map(appIds.map((id) => [id, statusOf(id, "running", true)]))
        const encode = makeReportEncoder()
        let at = 0
        for (const next of changes) {
          if (next.kind === "status") apps.set(next.appId, statusOf(next.appId, next.state, next.exists))
          if (next.kind === "measured") {
            const guest: Measured = {
              appId: next.appId,
              machineId: "m",
              vcpuCount: 1,
              memoryMib: 128,
              volumeId: volumeOf(next.appId),
              volumeBytes: 2 ** 26
            }
            const usage = {
              volumeTotalBytes: 2 ** 25,
              volumeUsedBytes: next.used,
              memoryTotalBytes: 2 ** 26,
              memoryUsedBytes: next.used,
              cpuTotalTicks: 200,
              cpuBusyTicks: next.ticks,
              receivedBytes: next.used,
              sentBytes: next.ticks
            }
            assert.isUndefined(measurements.note(guest, usage, at))
          }
          if (next.kind === "let-go") measurements.letGo(next.appId, "m")
          if (next.kind === "pass") {
            at += next.ms
            measurements.pass(apps, at)
          }
          if (next.kind === "named") measurements.keepOnly(new Set(next.named))
          const host = hostOf(apps, measurements)
          const report: unknown = JSON.parse(encode(host))
          assert.deepStrictEqual(report, JSON.parse(JSON.stringify(buildReport(host))))
          Schema.decodeUnknownSync(HostReport)(report)
        }
      })
    )
  })
})
