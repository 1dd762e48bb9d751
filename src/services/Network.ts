/** Addresses, ports and links: how the host reaches its guests, and what guests reach. */
import { Context, type Effect, Schema } from "effect"

/** A guest's NIC, as the hypervisor is told of it. */
export const NetworkLink = Schema.Union([
  /** QEMU's user network: `reach` is where the host finds the guest, on the same port numbers as in it. */
  Schema.Struct({
    kind: Schema.tag("user"),
    mac: Schema.String,
    guestAddress: Schema.String,
    hostAddress: Schema.String,
    prefixLength: Schema.Int,
    /** The guest's ports that are forwarded from `reachAddress`, the same number on both sides. */
    ports: Schema.Array(Schema.Int),
    reachAddress: Schema.String
  })
])
export type NetworkLink = typeof NetworkLink.Type

export class NetworkError extends Schema.TaggedError<NetworkError>()("NetworkError", {
  slot: Schema.Int,
  reason: Schema.String
}) {
  override get message() {
    return `the network of slot ${this.slot} cannot be set up: ${this.reason}`
  }
}

export class Network extends Context.Service<
  Network,
  {
    /** The link of the app in this slot, made ready for a boot. `ports`: the guest ports that must be reachable. Safe to repeat. */
    readonly attach: (slot: number, ports: ReadonlyArray<number>) => Effect.Effect<NetworkLink, NetworkError>
    /** Takes the slot's link down; no error when there is none. */
    readonly detach: (slot: number) => Effect.Effect<void, NetworkError>
    /** Where the host reaches a port of the guest in this slot. */
    readonly reach: (slot: number, guestPort: number) => { readonly host: string; readonly port: number }
  }
>()("nibrunner/services/Network") {}
