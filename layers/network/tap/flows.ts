/** The flows that the kernel keeps in mind: how many are open to guests, and their end. */
import { Effect } from "effect"
import { slotAddresses } from "../../../src/network/addresses.ts"
import { readOpenFlows } from "../../../src/network/readings.ts"
import { runCommand } from "./command.ts"

/** Those of IPv4 that a forward has brought to a guest. */
const FORWARDED = ["-f", "ipv4", "--dst-nat"]

/** The TCP connections that are open over forwards, by slot. */
export const openFlows = runCommand("conntrack", ["-L", "-p", "tcp", ...FORWARDED]).pipe(
  Effect.map(readOpenFlows)
)

const forget = (args: ReadonlyArray<string>) =>
  runCommand("conntrack", ["-D", ...args]).pipe(
    Effect.asVoid,
    // It fails when there was nothing to be deleted.
    Effect.catchIf(
      (error) => /\b0 flow entries have been deleted/u.test(error.said),
      () => Effect.void
    )
  )

/** Ends what is open over the slot's forwards. */
export const cutForwarded = (slot: number) => forget([...FORWARDED, "--reply-src", slotAddresses(slot).guest])

/** Ends whatever is open to the slot's guest and from it. */
export const cutAll = (slot: number) => {
  const { guest } = slotAddresses(slot)
  const ends = [
    ["--reply-src", guest],
    ["--orig-src", guest]
  ]
  return Effect.forEach(ends, (end) => forget(["-f", "ipv4", ...end]), { concurrency: 2, discard: true })
}
