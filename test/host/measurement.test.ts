/** What real guests say of themselves, and volumes that grow. */
import { statSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { LocalHost } from "../../scripts/local/host.ts"
import { readReport } from "../../scripts/local/report.ts"
import type { InstanceMeters } from "../../src/report/schema.ts"
import {
  awaitHost,
  awaitInstance,
  awaitState,
  document,
  documentOf,
  instance,
  put,
  request,
  runDaemon,
  startHost,
  volume
} from "./harness.ts"

const MIB = 2 ** 20

const ask = (host: LocalHost, path: string) =>
  Effect.map(request(host, "app-1", path), ({ status, body }) => {
    assert.strictEqual(status, 200, `${path}: ${body}`)
    return body.trim()
  })

/** The measurement that is newer than `since` (as the report writes times). */
const measured = (host: LocalHost, since = "") =>
  Effect.map(
    awaitInstance(
      host,
      "app-1",
      `is measured after ${since}`,
      ({ compute }) => compute !== undefined && compute.measuredAt > since
    ),
    ({ compute, meters }) => {
      if (compute === undefined || meters === undefined)
        throw new Error("an app is measured, or metered, alone")
      return { compute, meters }
    }
  )

const usageIn = (host: LocalHost) =>
  Effect.map(readReport(host), ({ volumes }) => {
    const usage = volumes[0]?.usage
    if (usage === undefined) throw new Error("the report tells no usage of the volume")
    return usage
  })

const assertGrown = (before: InstanceMeters, after: InstanceMeters) => {
  const shrunk = (Object.keys(before) as ReadonlyArray<keyof InstanceMeters>).filter(
    (meter) => after[meter] < before[meter]
  )
  assert.deepStrictEqual(shrunk, [])
}

layer(NodeServices.layer, { excludeTestServices: true })("a guest that is measured", (it) => {
  it.effect("tells its memory, its CPU time, its network and how full its volume is, and meters add up", () =>
    Effect.gen(function* () {
      const { host, tenant, daemon } = yield* startHost()
      yield* put(host, documentOf(instance("app-1", tenant)))
      yield* awaitState(host, "app-1", "running")

      const first = yield* measured(host)
      assert.isAbove(first.compute.memoryTotalBytes, 64 * MIB)
      assert.isAtMost(first.compute.memoryTotalBytes, 128 * MIB)
      assert.isBelow(first.compute.memoryUsedBytes, 64 * MIB)
      const empty = yield* usageIn(host)
      assert.isAbove(empty.totalBytes, 48 * MIB)
      assert.isAtMost(empty.totalBytes, 64 * MIB)
      assert.isBelow(empty.usedBytes, 8 * MIB)

      yield* ask(host, "/allocate?mib=32")
      const body = "x".repeat(4000)
      for (let file = 0; file < 64; file++) yield* ask(host, `/write?path=file-${file}&body=${body}`)
      yield* ask(host, "/burn?ms=15000")

      const second = yield* measured(host, first.compute.measuredAt)
      assert.isAbove(second.compute.memoryUsedBytes, first.compute.memoryUsedBytes + 24 * MIB)
      // fifteen seconds of at most a minute, and something for all else
      assert.isAbove(second.compute.cpuShare ?? 0, 0.15)
      assert.isAtMost(second.compute.cpuShare ?? 2, 1)
      assert.isAtLeast((yield* usageIn(host)).usedBytes, empty.usedBytes + 64 * 4096)
      assertGrown(first.meters, second.meters)
      assert.isAtLeast(second.meters.cpuMs, 10_000)
      assert.isAtLeast(second.meters.rxBytes, 64 * body.length)
      assert.isAbove(second.meters.txBytes, 0)
      assert.isAtLeast(second.meters.runningMs, 15_000)
      assert.isAtLeast(second.meters.diskProvisionedMibSeconds, 64 * 15)
      assert.isAbove(second.meters.diskUsedMibSeconds, 0)

      // The next daemon goes on where this one ended, from the measurement of its own.
      yield* daemon.stop
      yield* runDaemon(host)
      const third = yield* measured(host, second.compute.measuredAt)
      assertGrown(second.meters, third.meters)

      yield* put(host, documentOf(instance("app-1", tenant, { desiredState: "stopped" })))
      const stopped = yield* awaitState(host, "app-1", "stopped")
      assert.isUndefined(stopped.compute)
      assert.isAtLeast((yield* usageIn(host)).usedBytes, empty.usedBytes + 64 * 4096)
    })
  )

  it.effect(
    "has a larger volume after the boot that follows a larger size, with all that was in it; a smaller size is refused",
    () =>
      Effect.gen(function* () {
        const { host, tenant } = yield* startHost()
        const device = join(host.folder, "state/volumes/app-1-vol.img")
        const of = (mib: number, deploymentId: string) =>
          document([volume("app-1", { sizeBytes: mib * MIB })], [instance("app-1", tenant, { deploymentId })])
        yield* put(host, of(64, "dep-1"))
        yield* awaitState(host, "app-1", "running")
        yield* ask(host, "/write?path=note&body=kept")
        yield* measured(host)
        assert.isAtMost((yield* usageIn(host)).totalBytes, 64 * MIB)

        yield* put(host, of(128, "dep-1"))
        yield* awaitHost(
          host,
          "the volume waits",
          ({ volumes }) => volumes[0]?.message?.includes("when its app boots next") === true
        )
        assert.strictEqual(statSync(device).size, 64 * MIB)

        yield* put(host, of(128, "dep-2"))
        const booted = yield* awaitInstance(
          host,
          "app-1",
          "runs as dep-2",
          ({ deploymentId, state }) => deploymentId === "dep-2" && state === "running"
        )
        assert.strictEqual(statSync(device).size, 128 * MIB)
        assert.strictEqual(yield* ask(host, "/read?path=note"), "kept")
        yield* measured(host, booted.startedAt)
        const { totalBytes } = yield* usageIn(host)
        assert.isAbove(totalBytes, 100 * MIB)
        assert.isAtMost(totalBytes, 128 * MIB)

        yield* put(host, of(32, "dep-2"))
        const refused = yield* awaitHost(
          host,
          "the volume is refused",
          ({ volumes }) => volumes[0]?.state === "failed"
        )
        assert.include(refused.volumes[0]?.message, `${128 * MIB} bytes`)
        assert.include(refused.volumes[0]?.message, `${32 * MIB}`)
        assert.strictEqual(refused.instances[0]?.state, "running")
        assert.strictEqual(yield* ask(host, "/read?path=note"), "kept")
        assert.strictEqual(statSync(device).size, 128 * MIB)
      })
  )
})
