/**
 * QEMU's user network: no rights needed, no link on the host. A guest reaches nothing (`restrict=on`); the host reaches the
 * guest's ports on a loopback address of the slot's own, where QEMU listens while the microVM is up.
 */
import { Effect, Layer } from "effect"
import { MAX_SLOTS, SLOT_PREFIX_LENGTH, slotAddresses } from "../../src/network/addresses.ts"
import { Network, NetworkError } from "../../src/services/Network.ts"

const isPort = (port: number) => Number.isInteger(port) && port >= 1 && port <= 65535

/** Nothing is set up before a boot: that a port is busy on the host is found by the boot itself, which says so. */
export const layerUserNetwork: Layer.Layer<Network> = Layer.succeed(Network, {
  attach: (slot, ports) =>
    Effect.suspend(() => {
      if (!Number.isInteger(slot) || slot < 0 || slot >= MAX_SLOTS) {
        return Effect.fail(new NetworkError({ slot, reason: `there are ${MAX_SLOTS} slots, from 0` }))
      }
      const wrong = ports.find((port) => !isPort(port))
      if (wrong !== undefined) {
        return Effect.fail(new NetworkError({ slot, reason: `${wrong} is no port` }))
      }
      const addresses = slotAddresses(slot)
      return Effect.succeed({
        kind: "user" as const,
        mac: addresses.mac,
        guestAddress: addresses.guest,
        hostAddress: addresses.host,
        prefixLength: SLOT_PREFIX_LENGTH,
        ports: [...new Set(ports)],
        reachAddress: addresses.loopback
      })
    }),
  detach: () => Effect.void,
  reach: (slot, guestPort) => ({ host: slotAddresses(slot).loopback, port: guestPort })
})
