/** What this Linux machine has. */
import * as fs from "node:fs/promises"
import * as os from "node:os"
import { Effect, Layer, Schema } from "effect"
import { HostInfo } from "../../src/services/HostInfo.ts"
import { makeDirectory } from "../files/durable.ts"
import { onFile } from "../files/problem.ts"

/** The machine does not say what it has. */
export class HostInfoUnreadable extends Schema.TaggedError<HostInfoUnreadable>()("HostInfoUnreadable", {
  reason: Schema.String
}) {
  override get message() {
    return `what this host has cannot be read: ${this.reason}`
  }
}

/** MemAvailable of `/proc/meminfo` in bytes; undefined when the text has none. */
export const memAvailableBytes = (meminfo: string): number | undefined => {
  const kib = /^MemAvailable:\s+(\d+) kB$/mu.exec(meminfo)?.[1]
  return kib === undefined ? undefined : Number(kib) * 1024
}

export interface LinuxHostInfoOptions {
  /** Absolute; its filesystem is the one that is measured. */
  readonly stateDir: string
}

/** MemTotal of `/proc/meminfo` in whole MiB; undefined when the text has none. */
export const memTotalMib = (meminfo: string): number | undefined => {
  const kib = /^MemTotal:\s+(\d+) kB$/mu.exec(meminfo)?.[1]
  return kib === undefined ? undefined : Math.floor(Number(kib) / 1024)
}

/** Fails when memory or disk cannot be told at the start. */
export const layerLinuxHostInfo = (options: LinuxHostInfoOptions) =>
  Layer.effect(
    HostInfo,
    Effect.gen(function* () {
      const meminfo = onFile("/proc/meminfo", () => fs.readFile("/proc/meminfo", "utf8"))
      const memoryMib = memTotalMib(yield* meminfo)
      if (memoryMib === undefined)
        return yield* new HostInfoUnreadable({ reason: "/proc/meminfo has no MemTotal" })

      yield* makeDirectory(options.stateDir)
      const statfs = onFile(options.stateDir, () => fs.statfs(options.stateDir)).pipe(
        Effect.map((stat) => ({
          totalBytes: stat.blocks * stat.bsize,
          availableBytes: stat.bavail * stat.bsize
        }))
      )
      let last = yield* statfs

      return {
        vcpuCount: os.availableParallelism(),
        memoryMib,
        memoryAvailableBytes: meminfo.pipe(
          Effect.map(memAvailableBytes),
          Effect.catch((problem) =>
            Effect.as(
              Effect.logWarning(`how much memory is available cannot be read now: ${problem.reason}`),
              undefined
            )
          )
        ),
        disk: statfs.pipe(
          Effect.tap((disk) =>
            Effect.sync(() => {
              last = disk
            })
          ),
          Effect.catch((problem) =>
            Effect.as(Effect.logWarning(`the size of the disk cannot be read now: ${problem.reason}`), last)
          )
        )
      }
    }).pipe(
      Effect.catchTag("FileProblem", (problem) =>
        Effect.fail(new HostInfoUnreadable({ reason: problem.reason }))
      )
    )
  )
