/**
 * QEMU's user network: no rights needed, no link on the host. A guest reaches nothing (`restrict=on`); the host reaches the
 * guest's ports on loopback addresses of the slot's own, where QEMU listens while the microVM is up.
 */
import { Effect, Layer } from "effect"
import { forwardOf, userLink } from "../../src/network/user-link.ts"
import { Network } from "../../src/services/Network.ts"

/** Nothing is set up before a boot: that a port is busy on the host is found by the boot itself, which says so. */
export const layerUserNetwork: Layer.Layer<Network> = Layer.succeed(Network, {
  attach: (slot, ports) => Effect.fromResult(userLink(slot, ports)),
  detach: () => Effect.void,
  sweep: () => Effect.succeed([]),
  reach: forwardOf,
  carriesDatagrams: false,
  setForwards: () => Effect.void,
  cut: () => Effect.void,
  traffic: Effect.succeed(new Map())
})
