/** Keeps the proxy's route of one app in step with its state, and answers those who wait for the app to be up. */
import { Deferred, Effect } from "effect"
import { httpPortOfSlot, rawPortOfSlot } from "../config/ports.ts"
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
    hostPort: rawPortOfSlot(slot, index),
    guestPort
  }))

/** Datagrams by way of the guest's channel, as soon as the guest is greeted; before they are dropped. */
const datagramsTo = (attachment: Attachment): DatagramPath => ({
  open: (guestPort, onReply) =>
    attachment.guest?.datagrams.open(guestPort, onReply) ?? { send: () => {}, close: () => {} }
})

const noForwards: ReadonlyArray<PortForward> = []

/** One app's route: what is in force of it, and who is answered by it. */
export class Routing {
  readonly #host: HostContext
  readonly #model: AppModel
  /** The same one for the app's whole life: what is held stays held while the app comes up. */
  readonly #wake: AsleepTarget["wake"]
  /** Unknown until a route was put in force, and again whenever another app may have taken a hostname of it. */
  #inForce: AppRoute | undefined | "unknown" = "unknown"
  /** The slot whose raw ports the network carries past the proxy; `unknown` when that could not be changed. */
  #forwarded: number | undefined | "unknown"
  /** The microVM that the route led to last. */
  #served: Attachment | undefined

  constructor(host: HostContext, model: AppModel, post: (message: AppMessage) => Effect.Effect<void>) {
    this.#host = host
    this.#model = model
    this.#wake = Effect.suspend(() => {
      const answer: Waker = Deferred.makeUnsafe()
      return Effect.andThen(post({ kind: "wake-wanted", answer }), Deferred.await(answer))
    })
  }

  /**
   * Puts the route of this state in force, before the state is told to anybody.
   *
   * @param now ms since 1970
   */
  apply(status: InstanceStatus | undefined, now: number): Effect.Effect<void> {
    return Effect.suspend(() => {
      const next = this.#wanted(status, now)
      if (this.#inForce !== "unknown" && same(next, this.#inForce))
        return Effect.andThen(this.#endOfServing(next), this.#answerWakers(next?.target))
      this.#inForce = "unknown"
      const { proxy } = this.#host
      const put = next === undefined ? proxy.removeRoute(this.#model.appId) : proxy.setRoute(next)
      return put.pipe(
        Effect.tap(() =>
          Effect.sync(() => {
            this.#inForce = next
          })
        ),
        Effect.andThen(this.#forward(next, status?.slot)),
        Effect.andThen(this.#endOfServing(next)),
        Effect.andThen(this.#answerWakers(next?.target))
      )
    })
  }

  /** Tells those who wait that the app does not come up now. What comes later may ask again. */
  refuse(retryAfter?: number, reason = "This app could not be woken now."): Effect.Effect<void> {
    return this.#refuseOrForward({
      kind: "unavailable",
      reason,
      ...(retryAfter === undefined ? {} : { retryAfter })
    })
  }

  /** The next `apply` puts the route in force whatever it was. */
  renew(): void {
    this.#inForce = "unknown"
  }

  #wanted(status: InstanceStatus | undefined, now: number): AppRoute | undefined {
    const { appId, desired, attachment } = this.#model
    const { hostnameOwners, limits } = this.#host
    const { instance } = desired
    if (instance === undefined || status?.slot === undefined) return undefined
    const { slot } = status
    return {
      appId,
      hostPort: httpPortOfSlot(slot),
      hostnames: instance.hostnames
        .map(({ hostname }) => hostname)
        .filter((hostname) => hostnameOwners.get(hostname) === appId),
      rawPorts: limits.rawPortsPerGuest === 0 ? [] : rawPorts(slot, attachment?.instance ?? instance),
      target: this.#targetOf(status, slot, now)
    }
  }

  #targetOf(status: InstanceStatus, slot: number, now: number): RouteTarget {
    const reach = reachability(this.#model, status, now)
    switch (reach.kind) {
      case "up":
        return this.#up(slot)
      case "held":
        return { kind: "asleep", wake: this.#wake }
      case "unavailable":
        return reach
    }
  }

  #up(slot: number): UpTarget {
    const { network } = this.#host
    // A microVM listens where it was booted to listen, whatever the document says since.
    const { attachment, desired } = this.#model
    const httpPort = (attachment?.instance ?? desired.instance)?.config.httpPort ?? 0
    return {
      kind: "up",
      ...network.reach(slot, httpPort),
      ...(attachment === undefined || network.carriesDatagrams ? {} : { datagrams: datagramsTo(attachment) })
    }
  }

  /** Those who wait for the app go on where there is something to go on with. */
  #answerWakers(target: RouteTarget | undefined): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.#model.wakers.size === 0 || target?.kind === "asleep") return Effect.void
      return this.#refuseOrForward(target ?? { kind: "unavailable", reason: "This app is gone." })
    })
  }

  #refuseOrForward(answer: UpTarget | UnavailableTarget): Effect.Effect<void> {
    return Effect.suspend(() => {
      const wakers = [...this.#model.wakers]
      this.#model.wakers.clear()
      return Effect.forEach(wakers, (waker) => Deferred.succeed(waker, answer), { discard: true })
    })
  }

  /** While the app is up the network may carry its raw ports; else what comes is the proxy's, which holds it. */
  #forward(route: AppRoute | undefined, slot: number | undefined): Effect.Effect<void> {
    return Effect.suspend(() => {
      const ports = route?.target.kind === "up" ? (route.rawPorts ?? []) : []
      const next = ports.length === 0 ? undefined : slot
      if (next === this.#forwarded) return Effect.void
      const about = next ?? (typeof this.#forwarded === "number" ? this.#forwarded : slot)
      this.#forwarded = next
      if (about === undefined) return Effect.void
      return Effect.catch(
        this.#host.network.setForwards(about, next === undefined ? noForwards : ports),
        (error) => {
          this.#forwarded = "unknown"
          return Effect.logError(error.message)
        }
      )
    })
  }

  /** What is open to a microVM that is gone gets no answer any more, and would count as open for ever. */
  #endOfServing(route: AppRoute | undefined): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { attachment, appId } = this.#model
      if (route?.target.kind === "up") this.#served = attachment
      if (this.#served === undefined || this.#served === attachment) return Effect.void
      this.#served = undefined
      return this.#host.proxy.endConnections(appId)
    })
  }
}
