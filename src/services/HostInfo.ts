/** What this machine has. */
import { Context, type Effect } from "effect"

export class HostInfo extends Context.Service<
  HostInfo,
  {
    readonly vcpuCount: number
    /** MemTotal of /proc/meminfo, in MiB. */
    readonly memoryMib: number
    /** MemAvailable of /proc/meminfo now, in bytes; undefined when the kernel does not say. */
    readonly memoryAvailableBytes: Effect.Effect<number | undefined>
    /** Size and free bytes of the filesystem that holds the state directory. */
    readonly disk: Effect.Effect<{ readonly totalBytes: number; readonly availableBytes: number }>
  }
>()("nibrunner/services/HostInfo") {}
