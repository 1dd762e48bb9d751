/** Links of a `FakeHost`: the addresses of the user network, and a note of what is attached. */
import { Effect, Layer } from "effect"
import { slotAddresses } from "../../src/network/addresses.ts"
import { userLink } from "../../src/network/user-link.ts"
import { Network, NetworkError } from "../../src/services/Network.ts"
import type { FakeHost } from "./FakeHost.ts"

/** A network over the given world. It carries no ports itself: whatever comes for an app goes through the proxy. */
export const layerNetwork = (host: FakeHost) =>
  Layer.sync(Network, () => {
    const { take, setLink } = host.internal
    const failed = (slot: number) => (reason: string) => new NetworkError({ slot, reason })
    const attached = new Set<number>()
    return Network.of({
      attach: (slot, ports) =>
        take({ step: "attach", subject: `slot ${slot}`, ports }, failed(slot)).pipe(
          Effect.andThen(Effect.fromResult(userLink(slot, ports))),
          Effect.tap((link) =>
            Effect.sync(() => {
              attached.add(slot)
              setLink(slot, link.ports)
            })
          )
        ),
      detach: (slot) =>
        take({ step: "detach", subject: `slot ${slot}` }, failed(slot)).pipe(
          Effect.andThen(
            Effect.sync(() => {
              attached.delete(slot)
              setLink(slot, undefined)
            })
          )
        ),
      sweep: (keep) =>
        Effect.sync(() => {
          const gone = [...attached].filter((slot) => !keep.includes(slot))
          for (const slot of gone) {
            attached.delete(slot)
            setLink(slot, undefined)
          }
          return gone
        }),
      reach: (slot, guestPort) => ({ host: slotAddresses(slot).loopback, port: guestPort }),
      carriesDatagrams: false,
      setForwards: () => Effect.void,
      cut: () => Effect.void,
      traffic: Effect.succeed(new Map())
    })
  })
