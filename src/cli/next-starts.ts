/** When the apps that have failed are started again, as the planner says that the daemon asks. */
import { Effect, Result } from "effect"
import { foresee } from "../foresight/foresee.ts"
import { outOfRestarts } from "../reconcile/plan.ts"
import type { HostReport } from "../report/schema.ts"
import { hostNow } from "./host-now.ts"

/** A time in ms since 1970, or that no start is due. */
export type NextStart = number | "none"

/** The report's apps that have failed, and why: as long as it is the same, nothing is foreseen anew. */
export const failuresIn = ({ instances }: HostReport): string =>
  JSON.stringify(
    instances.flatMap(({ appId, deploymentId, message, state }) =>
      state === "failed" ? [[appId, deploymentId, message]] : []
    )
  )

/** Only of those apps of which it can be told; undefined where the host's notes cannot be read. */
export const nextStarts = Effect.gen(function* () {
  const seen = yield* Effect.result(hostNow)
  if (Result.isFailure(seen)) return undefined
  const { host } = seen.success
  if (host.document === undefined) return undefined
  const instances = new Map(host.document.instances.map((instance) => [instance.appId, instance]))
  const records = new Map(host.records.map((record) => [record.appId, record]))
  return new Map<string, NextStart>(
    foresee(host, host.document).flatMap(
      ({ actions, appId }): ReadonlyArray<readonly [string, NextStart]> => {
        const start = actions.find(({ kind }) => kind === "restart" || kind === "boot" || kind === "replace")
        if (start !== undefined)
          return [[appId, start.kind === "restart" ? (start.notBefore ?? host.now) : host.now]]
        // What keeps it from being started may go away by itself, as a slot that is free: nobody knows when.
        const instance = instances.get(appId)
        return instance !== undefined && outOfRestarts(records.get(appId), instance) ? [[appId, "none"]] : []
      }
    )
  )
})
