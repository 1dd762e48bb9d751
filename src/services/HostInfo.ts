/** What this machine has. */
import { Context, type Effect } from "effect"

export class HostInfo extends Context.Service<
  HostInfo,
  {
    readonly vcpuCount: number
    /** MemTotal of /proc/meminfo, in MiB. */
    readonly memoryMib: number
    /** Size and free bytes of the filesystem that holds the state directory. */
    readonly disk: Effect.Effect<{ readonly totalBytes: number; readonly availableBytes: number }>
  }
>()("nibrunner/services/HostInfo") {}
