/** What a configuration says to the reconciler. */

import { Effect, Layer } from "effect"
import packageManifest from "../package.json" with { type: "json" }
import type { HostConfig } from "../src/config/schema.ts"
import { HostSettings } from "../src/reconcile/settings.ts"
import { cacheMemory, zerofsVersion } from "./volume/zerofs/facts.ts"

/** MiB that the daemon and the kernel keep for themselves. */
export const BASELINE_MIB = 640
/** From a VMM's start to the first word of its guest, on a slow and crowded machine. */
const GUEST_HELLO_TIMEOUT_MS = 60_000

/** MiB of the host's memory that guests are never promised. */
export const reservedMemoryMib = ({ volumes: { zerofs } }: HostConfig): Effect.Effect<number> =>
  Effect.map(
    zerofs === undefined ? Effect.succeed(0) : cacheMemory(zerofs),
    (storageMib) => BASELINE_MIB + storageMib
  )

/** What of `[proxy]` apps may ask for. */
export const asked = ({ proxy }: HostConfig) => ({
  servesHttp: proxy?.http !== undefined,
  rawPortsPerGuest: proxy?.raw?.max_ports_per_guest ?? 0
})

const settingsOf = (config: HostConfig, reservedMib: number, zerofs: string): HostSettings["Service"] => ({
  maxApps: config.max_apps,
  maxConcurrentVmStarts: config.max_concurrent_vm_starts,
  reservedMemoryMib: reservedMib,
  ...asked(config),
  hasExportStore: config.exports !== undefined,
  storagePrefix: config.volumes.storage_prefix,
  snapshotDir: config.paths.snapshot_dir,
  guestHelloTimeoutMs: GUEST_HELLO_TIMEOUT_MS,
  versions: { agent: packageManifest.version, zerofs, firecracker: "none" }
})

/** Asks ZeroFS where volumes are on it. */
export const layerSettings = (config: HostConfig) =>
  Layer.effect(
    HostSettings,
    Effect.gen(function* () {
      const { zerofs } = config.volumes
      const version = zerofs === undefined ? "none" : yield* zerofsVersion(zerofs)
      return settingsOf(config, yield* reservedMemoryMib(config), version)
    })
  )
