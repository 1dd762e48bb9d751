/** What the machine has room for. */
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import { Effect } from "effect"
import type { HostConfig } from "../../src/config/schema.ts"
import { type Capacity, capacityOf } from "../../src/install/capacity.ts"
import { ifPresent, onFile } from "../files/problem.ts"
import { reserveOf } from "../hypervisor/qemu/snapshot/room.ts"
import { BASELINE_MIB } from "../settings.ts"
import { type Place, placed } from "./place.ts"

const MIB = 2 ** 20

/** The nearest directory above that is there. */
const nearest = (directory: string): Effect.Effect<string> =>
  ifPresent(onFile(directory, () => fs.stat(directory))).pipe(
    Effect.orElseSucceed(() => undefined),
    Effect.flatMap((found) =>
      found !== undefined || directory === path.dirname(directory)
        ? Effect.succeed(directory)
        : nearest(path.dirname(directory))
    )
  )

/** What the configuration says of where things lie; a host without one has a directory and its own disk. */
export interface Lies {
  readonly directory: string
  readonly zerofs: HostConfig["volumes"]["zerofs"]
  /** Counts what is free, and not the whole disk: on a host that has nothing on it yet. */
  readonly isNew: boolean
}

/** Measures the machine. Of the disk some is never a snapshot's. */
export const measureCapacity = Effect.fnUntraced(function* (
  place: Place,
  { directory, isNew, zerofs }: Lies
) {
  const disk = yield* nearest(placed(place, directory))
  const size = yield* onFile(disk, () => fs.statfs(disk)).pipe(
    Effect.map(({ bavail, blocks, bsize }) => (isNew ? bavail : blocks) * bsize - reserveOf(blocks * bsize)),
    Effect.orElseSucceed(() => undefined)
  )
  const cacheMib = (zerofs?.cache_memory_gib ?? 0) * 1024
  return capacityOf({
    guestMemoryMib: Math.floor(os.totalmem() / MIB) - BASELINE_MIB - cacheMib,
    diskMib: size === undefined ? undefined : Math.floor(size / MIB) - (zerofs?.cache_disk_gib ?? 0) * 1024,
    localVolumes: zerofs === undefined
  }) satisfies Capacity
})
