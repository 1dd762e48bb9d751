/** What a configuration says to the reconciler. */
import packageManifest from "../package.json" with { type: "json" }
import type { HostConfig } from "../src/config/schema.ts"
import type { HostSettings } from "../src/reconcile/settings.ts"

/** MiB that the daemon and the kernel keep for themselves. */
const BASELINE_MIB = 640
/** From a VMM's start to the first word of its guest, on a slow and crowded machine. */
const GUEST_HELLO_TIMEOUT_MS = 60_000

export const settingsOf = (config: HostConfig): HostSettings["Service"] => ({
  maxApps: config.max_apps,
  maxConcurrentVmStarts: config.max_concurrent_vm_starts,
  reservedMemoryMib: BASELINE_MIB + (config.volumes.zerofs?.cache_memory_gib ?? 0) * 1024,
  servesHttp: config.proxy?.http !== undefined,
  rawPortsPerGuest: config.proxy?.raw?.max_ports_per_guest ?? 0,
  storagePrefix: config.volumes.storage_prefix,
  snapshotDir: config.paths.snapshot_dir,
  guestHelloTimeoutMs: GUEST_HELLO_TIMEOUT_MS,
  versions: { agent: packageManifest.version, zerofs: "none", firecracker: "none" }
})
