/** What `nft` and `conntrack` print of the traffic of guests. */
import { Option, Schema } from "effect"
import { slotOfGuest } from "./addresses.ts"
import { type CounterName, readCounterName } from "./ruleset.ts"

/** A counter of the ruleset, as it stands since the ruleset was loaded. */
export interface CounterReading {
  readonly slot: number
  readonly counter: CounterName
  readonly packets: number
  readonly bytes: number
}

const Listing = Schema.fromJsonString(
  Schema.Struct({
    nftables: Schema.Array(
      Schema.Struct({
        counter: Schema.optionalKey(
          Schema.Struct({ name: Schema.String, packets: Schema.Number, bytes: Schema.Number })
        )
      })
    )
  })
)

/** The counters in the output of `nft -j list counters`; none when it is no such output. */
export const readCounters = (text: string): ReadonlyArray<CounterReading> | undefined =>
  Option.getOrUndefined(
    Option.map(Schema.decodeUnknownOption(Listing)(text), ({ nftables }) =>
      nftables.flatMap(({ counter }) => {
        const name = counter === undefined ? undefined : readCounterName(counter.name)
        return counter === undefined || name === undefined
          ? []
          : [{ ...name, packets: counter.packets, bytes: counter.bytes }]
      })
    )
  )

/** States of a TCP connection in which something may still come. */
const OPEN = new Set(["SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK"])

/**
 * The TCP connections that are open to each guest, by slot, in the output of `conntrack -L`: one a line, with the guest as
 * the source of its answers.
 */
export const readOpenFlows = (text: string): ReadonlyMap<number, number> => {
  const open = new Map<number, number>()
  for (const line of text.split("\n")) {
    const [, state] = /^tcp +6 +(?:\d+ +)?([A-Z_]+) /u.exec(line) ?? []
    const answersFrom = [...line.matchAll(/ src=(\S+)/gu)][1]?.[1]
    const slot = answersFrom === undefined ? undefined : slotOfGuest(answersFrom)
    if (state !== undefined && OPEN.has(state) && slot !== undefined)
      open.set(slot, (open.get(slot) ?? 0) + 1)
  }
  return open
}
