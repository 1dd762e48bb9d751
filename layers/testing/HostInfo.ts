/** A machine of any size. */
import { Effect, Layer } from "effect"
import { HostInfo } from "../../src/services/HostInfo.ts"

/** What a test can change while the daemon runs. */
export interface HostInfoWorld {
  readonly vcpuCount: number
  readonly memoryMib: number
  disk: { readonly totalBytes: number; readonly availableBytes: number }
}

/** 8 vCPUs, 16 GiB of memory, 100 GiB of disk with 80 free, unless told otherwise. */
export const makeHostInfoWorld = (machine: Partial<HostInfoWorld> = {}): HostInfoWorld => ({
  vcpuCount: 8,
  memoryMib: 16384,
  disk: { totalBytes: 100 * 2 ** 30, availableBytes: 80 * 2 ** 30 },
  ...machine
})

export const layerHostInfoMemory = (world: HostInfoWorld) =>
  Layer.succeed(HostInfo, {
    vcpuCount: world.vcpuCount,
    memoryMib: world.memoryMib,
    disk: Effect.sync(() => world.disk)
  })
