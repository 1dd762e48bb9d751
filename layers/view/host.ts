/** What this host has and does, for one who only looks. */
import * as fs from "node:fs/promises"
import * as os from "node:os"
import { Effect, Layer } from "effect"
import type { HostConfig } from "../../src/config/schema.ts"
import { limitsOf } from "../../src/reconcile/refusal.ts"
import { HostView } from "../../src/services/HostView.ts"
import { onFile } from "../files/problem.ts"
import { HostInfoUnreadable, memTotalMib } from "../host-info/linux.ts"
import { findVmm } from "../hypervisor/qemu/process.ts"
import { asked, reservedMemoryMib } from "../settings.ts"
import { isHeld } from "../state/lock.ts"
import { lookAtDocument, lookAtNotes } from "../state/look.ts"

const MEMINFO = "/proc/meminfo"

/** A daemon whose state directory was taken away runs all the same, and has its runtime directory. */
const daemonRuns = ({ paths }: HostConfig) =>
  Effect.flatMap(isHeld({ key: "paths.state_dir", path: paths.state_dir }), (held) =>
    held ? Effect.succeed(true) : isHeld({ key: "paths.runtime_dir", path: paths.runtime_dir })
  )

/** Fails when the memory of the machine cannot be told. */
export const layerHostView = (config: HostConfig) =>
  Layer.effect(
    HostView,
    Effect.gen(function* () {
      const memoryMib = memTotalMib(
        yield* onFile(MEMINFO, () => fs.readFile(MEMINFO, "utf8")).pipe(
          Effect.mapError(({ reason }) => new HostInfoUnreadable({ reason }))
        )
      )
      if (memoryMib === undefined)
        return yield* new HostInfoUnreadable({ reason: `${MEMINFO} has no MemTotal` })
      const settings = { ...asked(config), reservedMemoryMib: yield* reservedMemoryMib(config) }
      return {
        notes: lookAtNotes(config.paths.state_dir),
        document: lookAtDocument(config.paths.state_dir),
        daemonRuns: daemonRuns(config),
        runs: (record) => Effect.sync(() => findVmm(record, config.paths.runtime_dir) !== undefined),
        limits: limitsOf({ vcpuCount: os.availableParallelism(), memoryMib }, settings),
        maxApps: config.max_apps
      }
    })
  )
