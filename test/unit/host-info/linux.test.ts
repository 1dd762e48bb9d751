import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { layerLinuxHostInfo, memAvailableBytes, memTotalMib } from "../../../layers/host-info/linux.ts"
import { HostInfo } from "../../../src/services/HostInfo.ts"
import { recordedLog } from "../../support/log.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

describe("what a Linux host has", () => {
  it("is MemTotal in whole MiB", () => {
    assert.strictEqual(memTotalMib("MemTotal:       16384999 kB\nMemFree: 1 kB\n"), 16000)
    assert.strictEqual(memTotalMib("MemFree: 1 kB\nXMemTotal: 5 kB\n"), undefined)
  })

  it("is MemAvailable in bytes, unknown to a kernel that does not tell it", () => {
    assert.strictEqual(memAvailableBytes("MemTotal: 9 kB\nMemAvailable:    1000 kB\n"), 1_024_000)
    assert.strictEqual(memAvailableBytes("MemTotal: 9 kB\nMemFree: 1 kB\n"), undefined)
  })

  it.live("is this machine's processors, memory and disk", () =>
    Effect.gen(function* () {
      const stateDir = path.join(yield* temporaryDirectory, "state")
      const info = yield* HostInfo.pipe(Effect.provide(layerLinuxHostInfo({ stateDir })))
      assert.strictEqual(info.vcpuCount, os.availableParallelism())
      assert.isAtMost(Math.abs(info.memoryMib - os.totalmem() / 2 ** 20), 1)
      const available = yield* info.memoryAvailableBytes
      assert.isAbove(available ?? 0, 0)
      assert.isBelow(available ?? 0, os.totalmem())
      const disk = yield* info.disk
      assert.isAbove(disk.availableBytes, 0)
      assert.isAbove(disk.totalBytes, disk.availableBytes)
    })
  )

  it.live("is said to be as it was last while the disk cannot be asked", () =>
    Effect.gen(function* () {
      const { lines, layer } = recordedLog()
      const stateDir = path.join(yield* temporaryDirectory, "state")
      const info = yield* HostInfo.pipe(Effect.provide(layerLinuxHostInfo({ stateDir })))
      const before = yield* info.disk
      yield* Effect.promise(() => fs.rmdir(stateDir))
      assert.deepStrictEqual(yield* info.disk.pipe(Effect.provide(layer)), before)
      assert.deepStrictEqual(lines, [
        `Warn the size of the disk cannot be read now: ${stateDir} does not exist`
      ])
    })
  )
})
