/** Keeps the proxy's route of one app in step with its state, and answers those who wait for the app to be up. */
import { Deferred, Effect } from "effect"
import { httpPortOfSlot } from "../config/ports.ts"
import type { DesiredInstance } from "../document/schema.ts"
import type { PortForward } from "../services/Network.ts"
import type {
  AppRoute,
  AsleepTarget,
  DatagramPath,
  RawPort,
  RouteTarget,
  UnavailableTarget,
  UpTarget
} from "../services/Proxy.ts"
import type { HostContext } from "./host-context.ts"
import type { AppMessage, AppModel, Attachment, Waker } from "./model.ts"
import { type InstanceStatus, reachability } from "./status.ts"

const same = (left: AppRoute | undefined, right: AppRoute | undefined): boolean =>
  JSON.stringify(left) === JSON.stringify(right)

/** On a slot's ports after its HTTP port, in the order of the document. */
const rawPorts = (slot: number, { config }: DesiredInstance): ReadonlyArray<RawPort> =>
  (config.ports ?? []).map(({ name, guestPort }, index) => ({
    name,
    hostPort: httpPortOfSlot(slot) + index + 1,
    guestPort
  }))

/** Datagrams by way of the guest's channel, as soon as the guest is greeted; before they are dropped. */
const datagramsTo = (attachment: Attachment): DatagramPath => ({
  open: (guestPort, onReply) =>
    attachment.guest?.datagrams.open(guestPort, onReply) ?? { send: () => {}, close: () => {} }
})

const noForwards: ReadonlyArray<PortForward> = []

export const makeRouting = (
  host: HostContext,
  model: AppModel,
  post: (message: AppMessage) => Effect.Effect<void>
) => {
  /** Unknown until a route was put in force, and again whenever another app may have taken a hostname of it. */
  let inForce: AppRoute | undefined | "unknown" = "unknown"

  // The same one for the app's whole life: what is held stays held while the app comes up.
  const wake: AsleepTarget["wake"] = Effect.suspend(() => {
    const answer: Waker = Deferred.makeUnsafe()
    return Effect.andThen(post({ kind: "wake-wanted", answer }), Deferred.await(answer))
  })

  const up = (slot: number): UpTarget => {
    // A microVM listens where it was booted to listen, whatever the document says since.
    const { attachment } = model
    const httpPort = (attachment?.instance ?? model.desired.instance)?.config.httpPort ?? 0
    return {
      kind: "up",
      ...host.network.reach(slot, httpPort),
      ...(attachment === undefined || host.network.carriesDatagrams
        ? {}
        : { datagrams: datagramsTo(attachment) })
    }
  }

  const targetOf = (status: InstanceStatus, slot: number, now: number): RouteTarget => {
    const reach = reachability(model, status, now)
    switch (reach.kind) {
      case "up":
        return up(slot)
      case "held":
        return { kind: "asleep", wake }
      case "unavailable":
        return reach
    }
  }

  const wanted = (status: InstanceStatus | undefined, now: number): AppRoute | undefined => {
    const { instance } = model.desired
    if (instance === undefined || status?.slot === undefined) return undefined
    const { slot } = status
    return {
      appId: model.appId,
      hostPort: httpPortOfSlot(slot),
      hostnames: instance.hostnames
        .map(({ hostname }) => hostname)
        .filter((hostname) => host.hostnameOwners.get(hostname) === model.appId),
      rawPorts:
        host.limits.rawPortsPerGuest === 0 ? [] : rawPorts(slot, model.attachment?.instance ?? instance),
      target: targetOf(status, slot, now)
    }
  }

  /** Those who wait for the app go on where there is something to go on with. */
  const answerWakers = (target: RouteTarget | undefined): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (model.wakers.size === 0 || target?.kind === "asleep") return Effect.void
      const answer: UpTarget | UnavailableTarget = target ?? {
        kind: "unavailable",
        reason: "This app is gone."
      }
      return refuseOrForward(answer)
    })

  const refuseOrForward = (answer: UpTarget | UnavailableTarget): Effect.Effect<void> =>
    Effect.suspend(() => {
      const wakers = [...model.wakers]
      model.wakers.clear()
      return Effect.forEach(wakers, (waker) => Deferred.succeed(waker, answer), { discard: true })
    })

  /** The slot whose raw ports the network carries past the proxy; `unknown` when that could not be changed. */
  let forwarded: number | undefined | "unknown"

  /** While the app is up the network may carry its raw ports; else what comes is the proxy's, which holds it. */
  const forward = (route: AppRoute | undefined, slot: number | undefined): Effect.Effect<void> =>
    Effect.suspend(() => {
      const ports = route?.target.kind === "up" ? (route.rawPorts ?? []) : []
      const next = ports.length === 0 ? undefined : slot
      if (next === forwarded) return Effect.void
      const about = next ?? (typeof forwarded === "number" ? forwarded : slot)
      forwarded = next
      if (about === undefined) return Effect.void
      return Effect.catch(
        host.network.setForwards(about, next === undefined ? noForwards : ports),
        (error) => {
          forwarded = "unknown"
          return Effect.logError(error.message)
        }
      )
    })

  /** The microVM that the route led to last. */
  let served: Attachment | undefined

  /** What is open to a microVM that is gone gets no answer any more, and would count as open for ever. */
  const endOfServing = (route: AppRoute | undefined): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (route?.target.kind === "up") served = model.attachment
      if (served === undefined || served === model.attachment) return Effect.void
      served = undefined
      return host.proxy.endConnections(model.appId)
    })

  return {
    /**
     * Puts the route of this state in force, before the state is told to anybody.
     *
     * @param now ms since 1970
     */
    apply: (status: InstanceStatus | undefined, now: number): Effect.Effect<void> =>
      Effect.suspend(() => {
        const next = wanted(status, now)
        if (inForce !== "unknown" && same(next, inForce))
          return Effect.andThen(endOfServing(next), answerWakers(next?.target))
        inForce = "unknown"
        const put = next === undefined ? host.proxy.removeRoute(model.appId) : host.proxy.setRoute(next)
        return put.pipe(
          Effect.tap(() =>
            Effect.sync(() => {
              inForce = next
            })
          ),
          Effect.andThen(forward(next, status?.slot)),
          Effect.andThen(endOfServing(next)),
          Effect.andThen(answerWakers(next?.target))
        )
      }),
    /** Tells those who wait that the app does not come up now. What comes later may ask again. */
    refuse: (retryAfter?: number, reason = "This app could not be woken now."): Effect.Effect<void> =>
      refuseOrForward({
        kind: "unavailable",
        reason,
        ...(retryAfter === undefined ? {} : { retryAfter })
      }),
    /** The next `apply` puts the route in force whatever it was. */
    renew: (): void => {
      inForce = "unknown"
    }
  }
}
