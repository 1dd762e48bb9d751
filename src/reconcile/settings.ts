/** What the configuration says about this host, as far as the reconciler asks. */
import { Context } from "effect"

export class HostSettings extends Context.Service<
  HostSettings,
  {
    /** `max_apps`: how many slots there are. */
    readonly maxApps: number
    /** `max_concurrent_vm_starts`; undefined: no limit. */
    readonly maxConcurrentVmStarts: number | undefined
    /** MiB of the host's memory that guests are never promised: the daemon's own share and the storage cache. */
    readonly reservedMemoryMib: number
    /** Whether the host has `[proxy.http]`. */
    readonly servesHttp: boolean
    /** `proxy.raw.max_ports_per_guest`; 0 on a host without `[proxy.raw]`. */
    readonly rawPortsPerGuest: number
    /** Whether the host has `[exports]`. */
    readonly hasExportStore: boolean
    /** `volumes.storage_prefix`, echoed in the report. */
    readonly storagePrefix: string
    /** `paths.snapshot_dir`: where apps that sleep lie, a directory each. */
    readonly snapshotDir: string
    /** How long a guest may take from the VMM's start to its first word, in ms. */
    readonly guestHelloTimeoutMs: number
    /** What the report's `versions` says. */
    readonly versions: { readonly agent: string; readonly zerofs: string; readonly firecracker: string }
  }
>()("nibrunner/reconcile/HostSettings") {}
