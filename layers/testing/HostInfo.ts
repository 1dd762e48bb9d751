/** A machine of any size. */
import { Effect, Layer } from "effect"
import { HostInfo } from "../../src/services/HostInfo.ts"

/** What a test can change while the daemon runs. */
export interface HostInfoWorld {
  readonly vcpuCount: number
  readonly memoryMib: number
  memoryAvailableBytes: number | undefined
  disk: { readonly totalBytes: number; readonly availableBytes: number }
}

/** 8 vCPUs, 16 GiB of memory, 12 of them available, 100 GiB of disk with 80 free, unless told otherwise. */
export const makeHostInfoWorld = (machine: Partial<HostInfoWorld> = {}): HostInfoWorld => ({
  vcpuCount: 8,
  memoryMib: 16384,
  memoryAvailableBytes: 12 * 2 ** 30,
  disk: { totalBytes: 100 * 2 ** 30, availableBytes: 80 * 2 ** 30 },
  ...machine
})

export const layerHostInfoMemory = (world: HostInfoWorld) =>
  Layer.succeed(HostInfo, {
    vcpuCount: world.vcpuCount,
    memoryMib: world.memoryMib,
    memoryAvailableBytes: Effect.sync(() => world.memoryAvailableBytes),
    disk: Effect.sync(() => world.disk)
  })
