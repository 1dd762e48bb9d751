/** The host as it is at this moment: what the report and the metrics page are both made of. */
import { Clock, Deferred, Effect } from "effect"
import type { CheckpointId, ExportId } from "../document/schema.ts"
import type { HostStatus } from "../report/build.ts"
import type { CheckpointStatus } from "./checkpoints.ts"
import type { DocumentInForce } from "./document-watch.ts"
import type { ExportStatus } from "./exports.ts"
import type { HostContext } from "./host-context.ts"

export interface HostStatusOptions {
  readonly host: HostContext
  readonly checkpoints: ReadonlyMap<CheckpointId, CheckpointStatus>
  readonly exports: ReadonlyMap<ExportId, ExportStatus>
  /** Done when every app that the daemon found at its start was looked at once. */
  readonly allLooked: Deferred.Deferred<void>
  readonly document: () => {
    readonly inForce: DocumentInForce | undefined
    /** Why the document's file is not what is in force. */
    readonly verdict: string | undefined
  }
}

export const hostStatus = (options: HostStatusOptions): Effect.Effect<HostStatus> =>
  Effect.gen(function* () {
    const { host, allLooked, document, checkpoints, exports } = options
    const { inForce, verdict } = document()
    return {
      now: yield* Clock.currentTimeMillis,
      ready: yield* Deferred.isDone(allLooked),
      inForce,
      troubles: [...host.lostDirectories, ...(verdict === undefined ? [] : [verdict])],
      vcpuCount: host.info.vcpuCount,
      memoryMib: host.limits.memoryMib,
      heldMemoryMib: yield* host.memory.held,
      disk: yield* host.info.disk,
      versions: {
        ...host.settings.versions,
        guestImage: host.guestImage.version,
        hypervisor: host.hypervisor.version
      },
      storagePrefix: host.settings.storagePrefix,
      apps: host.statuses,
      checkpoints,
      exports,
      measured: (appId) => host.measurements.of(appId)
    }
  })
