/** Addresses, ports and links: how the host reaches its guests, and what guests reach. */
import { Context, type Effect, Schema } from "effect"

/** A guest's NIC, as the hypervisor is told of it. */
export const NetworkLink = Schema.Union([
  /** QEMU's user network: where the host finds the guest's ports is the slot's, and `reach`'s to say. */
  Schema.Struct({
    kind: Schema.tag("user"),
    mac: Schema.String,
    guestAddress: Schema.String,
    hostAddress: Schema.String,
    prefixLength: Schema.Int,
    /** The guest's ports that are forwarded. */
    ports: Schema.Array(Schema.Int)
  }),
  /** An interface of the host's kernel, which the host finds the guest behind, on the guest's own address. */
  Schema.Struct({
    kind: Schema.tag("tap"),
    ifname: Schema.String,
    mac: Schema.String,
    guestAddress: Schema.String,
    hostAddress: Schema.String,
    prefixLength: Schema.Int
  })
])
export type NetworkLink = typeof NetworkLink.Type
export type UserLink = Extract<NetworkLink, { readonly kind: "user" }>
export type TapLink = Extract<NetworkLink, { readonly kind: "tap" }>

/** One raw port that the network itself carries to a guest, TCP and UDP, from the host's addresses. */
export interface PortForward {
  readonly hostPort: number
  readonly guestPort: number
}

/** What went over a slot's link since it was attached, as far as the network sees it. All but `openFlows` only grow. */
export interface SlotTraffic {
  /** Bytes to the guest, whoever sent them. */
  readonly bytesIn: number
  /** Bytes that the guest sent and that were let through. */
  readonly bytesOut: number
  /** Packets that came for the guest over `setForwards`, from whoever opened the flow. The guest's own flows bring none. */
  readonly arrivals: number
  /** TCP connections that are open over `setForwards`. Exchanges of UDP have no end: they show in `arrivals` alone. */
  readonly openFlows: number
}

/** `slot`: whose link it is about; absent when it is about all of them. */
export class NetworkError extends Schema.TaggedError<NetworkError>()("NetworkError", {
  slot: Schema.optionalKey(Schema.Int),
  reason: Schema.String
}) {
  override get message() {
    return this.slot === undefined
      ? `the network of this host cannot be set up: ${this.reason}`
      : `the network of slot ${this.slot} cannot be set up: ${this.reason}`
  }
}

export class Network extends Context.Service<
  Network,
  {
    /**
     * The link of the app in this slot, made ready for a boot or a wake. `ports`: the guest ports that must be reachable.
     * Safe to repeat, and cheap when nothing has changed. Fails as long as what keeps guests apart is not in force.
     */
    readonly attach: (slot: number, ports: ReadonlyArray<number>) => Effect.Effect<NetworkLink, NetworkError>
    /**
     * Takes the slot's link down, its forwards and whatever was open over it: who has the slot next gets nothing of it.
     * No error when there is none.
     */
    readonly detach: (slot: number) => Effect.Effect<void, NetworkError>
    /**
     * Takes down every link of this host whose slot is not among `keep`, and takes up those that are. Called once, at
     * the start of a daemon, before anything boots. Gives the slots whose links were taken down.
     */
    readonly sweep: (keep: ReadonlyArray<number>) => Effect.Effect<ReadonlyArray<number>, NetworkError>
    /** Where the host reaches a port of the guest in this slot. */
    readonly reach: (slot: number, guestPort: number) => { readonly host: string; readonly port: number }
    /** Whether `reach` holds for UDP too; where it does not, datagrams go another way. */
    readonly carriesDatagrams: boolean
    /**
     * From now on the network itself carries what newly comes for these ports to the guest, past the proxy, and what
     * comes for others of the slot it leaves to the proxy. What is open already goes on. A network that cannot carry
     * ports carries none, without an error. Fails for a slot that is not attached, unless there are no ports.
     */
    readonly setForwards: (
      slot: number,
      forwards: ReadonlyArray<PortForward>
    ) => Effect.Effect<void, NetworkError>
    /** Ends whatever is open over the slot's forwards: its next packet is as good as a first one. */
    readonly cut: (slot: number) => Effect.Effect<void, NetworkError>
    /** The traffic of every slot that is attached; empty where the network counts none. Fresh at each reading. */
    readonly traffic: Effect.Effect<ReadonlyMap<number, SlotTraffic>, NetworkError>
  }
>()("nibrunner/services/Network") {}
