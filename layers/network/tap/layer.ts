/**
 * A tap for each guest, and rules of nftables that keep them apart. Needs root. Taps and rules outlive the daemon, as
 * microVMs do; the next one takes them up.
 */
import { Effect, Layer } from "effect"
import type { ChildProcessSpawner } from "effect/process"
import { MAX_RAW_PORTS, rawPortOfSlot } from "../../../src/config/ports.ts"
import { slotAddresses } from "../../../src/network/addresses.ts"
import { isPort } from "../../../src/network/slot-link.ts"
import { tapLink } from "../../../src/network/tap-link.ts"
import { Network, NetworkError, type PortForward, type SlotTraffic } from "../../../src/services/Network.ts"
import { checkFitness } from "./fitness.ts"
import { cutAll, cutForwarded, openFlows } from "./flows.ts"
import { holdNetwork } from "./hold.ts"
import { type KeeperOptions, makeKeeper } from "./keeper.ts"
import { deleteTap, hasTap, listTaps, makeTap } from "./taps.ts"

export interface TapOptions extends KeeperOptions {
  /** The user that the VMM of a slot runs as: the only one beside root who can open its tap. */
  readonly owner: (slot: number) => number
}

/** Why these are not forwards of the slot; nothing when they are. */
const wrongForward = (slot: number, forwards: ReadonlyArray<PortForward>): string | undefined => {
  const own = Array.from({ length: MAX_RAW_PORTS }, (_, position) => rawPortOfSlot(slot, position))
  const taken = new Set<number>()
  for (const { hostPort, guestPort } of forwards) {
    if (!own.includes(hostPort)) return `${hostPort} is none of its raw ports`
    if (!isPort(guestPort)) return `${guestPort} is no port`
    if (taken.has(hostPort)) return `${hostPort} is forwarded twice`
    taken.add(hostPort)
  }
  return undefined
}

export const layerTapNetwork = (
  options: TapOptions
): Layer.Layer<Network, NetworkError, ChildProcessSpawner.ChildProcessSpawner> =>
  Layer.effect(
    Network,
    Effect.gen(function* () {
      yield* Effect.mapError(checkFitness, ({ reason }) => new NetworkError({ reason }))
      yield* holdNetwork
      const keeper = yield* makeKeeper(options)
      const { slots } = keeper
      // MicroVMs of an earlier daemon may be behind them: whoever is not swept goes on.
      for (const slot of yield* listTaps) keeper.set(slot, [])
      /** The slots whose taps this daemon has made, or was told to keep: in them is nothing of an unknown owner. */
      const own = new Set<number>()
      const context = yield* Effect.context<ChildProcessSpawner.ChildProcessSpawner>()

      /** With the programs that it needs, and its failure told as one of this slot, or of the network. */
      const here = <A, E extends { readonly message: string }>(
        effect: Effect.Effect<A, E, ChildProcessSpawner.ChildProcessSpawner>,
        slot?: number
      ) =>
        Effect.mapError(
          Effect.provide(effect, context),
          ({ message }) => new NetworkError({ ...(slot === undefined ? {} : { slot }), reason: message })
        )

      /** A tap, and nothing of whoever had its slot before: no rule lets anything through to it yet. */
      const make = (slot: number) =>
        Effect.all([cutAll(slot), makeTap(slot, options.owner(slot))], { concurrency: 2, discard: true })

      /** Packets stop before the tap goes, and what was open is forgotten last, so that nothing opens it again. */
      const takeDown = (slot: number) =>
        Effect.sync(() => {
          own.delete(slot)
          keeper.forget(slot)
        }).pipe(
          // The tap goes in any case: the keeper says that it cannot load the rules, and goes on trying.
          Effect.andThen(Effect.ignore(keeper.ensure)),
          Effect.andThen(deleteTap(slot)),
          Effect.andThen(cutAll(slot))
        )

      return Network.of({
        attach: Effect.fnUntraced(function* (slot, ports) {
          const link = yield* Effect.fromResult(tapLink(slot, ports))
          const known = own.has(slot)
          if (!known || !hasTap(slot)) yield* here(make(slot), slot)
          if (!known) keeper.set(slot, [])
          own.add(slot)
          yield* here(keeper.ensure, slot).pipe(
            Effect.tapError(() => (known ? Effect.void : here(Effect.ignore(takeDown(slot)))))
          )
          return link
        }),
        detach: (slot) =>
          Effect.suspend(() => (slots.has(slot) || hasTap(slot) ? here(takeDown(slot), slot) : Effect.void)),
        sweep: (keep) =>
          Effect.gen(function* () {
            const taps = yield* listTaps
            const gone = [...new Set([...taps, ...slots.keys()])].filter((slot) => !keep.includes(slot))
            const kept = taps.filter((slot) => keep.includes(slot))
            // Not cut: a microVM that runs goes on with what it has open.
            yield* Effect.forEach(kept, (slot) => makeTap(slot, options.owner(slot)), { concurrency: 4 })
            for (const slot of kept) {
              own.add(slot)
              if (!slots.has(slot)) keeper.set(slot, [])
            }
            for (const slot of gone) {
              own.delete(slot)
              keeper.forget(slot)
            }
            yield* keeper.ensure
            yield* Effect.forEach(gone, (slot) => Effect.andThen(deleteTap(slot), cutAll(slot)), {
              concurrency: 4
            })
            return gone.toSorted((left, right) => left - right)
          }).pipe((effect) => here(effect)),
        reach: (slot, guestPort) => ({ host: slotAddresses(slot).guest, port: guestPort }),
        carriesDatagrams: true,
        setForwards: Effect.fnUntraced(function* (slot, forwards) {
          const before = slots.get(slot)
          if (before === undefined && forwards.length === 0) return
          const wrong = before === undefined ? "it is not attached" : wrongForward(slot, forwards)
          if (wrong !== undefined) return yield* new NetworkError({ slot, reason: wrong })
          keeper.set(slot, forwards)
          yield* here(keeper.ensure, slot)
        }),
        cut: (slot) => Effect.suspend(() => (slots.has(slot) ? here(cutForwarded(slot), slot) : Effect.void)),
        traffic: Effect.suspend(() =>
          slots.size === 0
            ? Effect.succeed(new Map<number, SlotTraffic>())
            : here(
                Effect.gen(function* () {
                  const flows = yield* openFlows
                  const totals = yield* keeper.totals
                  return new Map(
                    [...totals].map(([slot, { received, sent, arrivals }]): [number, SlotTraffic] => [
                      slot,
                      {
                        bytesIn: received.bytes,
                        bytesOut: sent.bytes,
                        arrivals: arrivals.packets,
                        openFlows: flows.get(slot) ?? 0
                      }
                    ])
                  )
                })
              )
        )
      })
    })
  )
