/** When the apps that have failed are started again, as the planner says that the daemon asks. */
import { Effect, Result } from "effect"
import { foresee } from "../foresight/foresee.ts"
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

/** Undefined where the host's notes cannot be read. */
export const nextStarts = Effect.gen(function* () {
  const seen = yield* Effect.result(hostNow)
  if (Result.isFailure(seen)) return undefined
  const { host } = seen.success
  if (host.document === undefined) return undefined
  return new Map(
    foresee(host, host.document).map(({ actions, appId }) => {
      const start = actions.find(({ kind }) => kind === "restart" || kind === "boot" || kind === "replace")
      const at = start?.kind === "restart" ? (start.notBefore ?? host.now) : host.now
      return [appId as string, start === undefined ? "none" : at] as const
    })
  )
})
