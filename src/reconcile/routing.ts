/** Keeps the proxy's route of one app in step with its state. */
import { Effect } from "effect"
import { httpPortOfSlot } from "../config/ports.ts"
import type { AppRoute } from "../services/Proxy.ts"
import type { HostContext } from "./host-context.ts"
import type { AppModel } from "./model.ts"
import { type InstanceStatus, routeTarget } from "./status.ts"

const same = (left: AppRoute | undefined, right: AppRoute | undefined): boolean =>
  JSON.stringify(left) === JSON.stringify(right)

export const makeRouting = (host: HostContext, model: AppModel) => {
  /** Unknown until a route was put in force, and again whenever another app may have taken a hostname of it. */
  let inForce: AppRoute | undefined | "unknown" = "unknown"

  const wanted = (status: InstanceStatus | undefined): AppRoute | undefined => {
    const { instance } = model.desired
    if (instance === undefined || status?.slot === undefined) return undefined
    // A microVM listens where it was booted to listen, whatever the document says since.
    const httpPort = (model.attachment?.instance ?? instance).config.httpPort
    return {
      appId: model.appId,
      hostPort: httpPortOfSlot(status.slot),
      hostnames: instance.hostnames
        .map(({ hostname }) => hostname)
        .filter((hostname) => host.hostnameOwners.get(hostname) === model.appId),
      target: routeTarget(status, (slot) => host.network.reach(slot, httpPort))
    }
  }

  return {
    /** Puts the route of this state in force, before the state is told to anybody. */
    apply: (status: InstanceStatus | undefined): Effect.Effect<void> =>
      Effect.suspend(() => {
        const next = wanted(status)
        if (inForce !== "unknown" && same(next, inForce)) return Effect.void
        inForce = "unknown"
        const put = next === undefined ? host.proxy.removeRoute(model.appId) : host.proxy.setRoute(next)
        return Effect.tap(put, () =>
          Effect.sync(() => {
            inForce = next
          })
        )
      }),
    /** The next `apply` puts the route in force whatever it was. */
    renew: (): void => {
      inForce = "unknown"
    }
  }
}
