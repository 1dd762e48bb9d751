/** The link of a guest on QEMU's user network. */
import { Result } from "effect"
import type { NetworkError, UserLink } from "../services/Network.ts"
import { slotAddresses } from "./addresses.ts"
import { slotLink } from "./slot-link.ts"

/** The first port that is bound without a right to it (net.ipv4.ip_unprivileged_port_start, as kernels have it). */
const UNPRIVILEGED = 1024
const MOVED_UP = 65_536 - UNPRIVILEGED

/**
 * Where the host finds a guest's port. QEMU listens there, without a right to ports below 1024: those are found as much
 * higher on an address that is the slot's too, where they meet none of its others.
 */
export const forwardOf = (
  slot: number,
  guestPort: number
): { readonly host: string; readonly port: number } => {
  const { loopback, lowLoopback } = slotAddresses(slot)
  return guestPort < UNPRIVILEGED
    ? { host: lowLoopback, port: guestPort + MOVED_UP }
    : { host: loopback, port: guestPort }
}

/** A port that is named twice is one. Fails for a slot that does not exist, and for what is no port. */
export const userLink = (slot: number, ports: ReadonlyArray<number>): Result.Result<UserLink, NetworkError> =>
  Result.map(slotLink(slot, ports), (link) => ({
    kind: "user",
    ...link,
    ports: [...new Set(ports)]
  }))
