/** The link of a guest behind a tap of the host's kernel. */
import { Result } from "effect"
import type { NetworkError, TapLink } from "../services/Network.ts"
import { MAX_SLOTS, slotAddresses } from "./addresses.ts"
import { slotLink } from "./slot-link.ts"

/** What every tap's name starts with; the rest is the slot in decimal. */
export const TAP_PREFIX = "nbr"

export const tapName = (slot: number): string => `${TAP_PREFIX}${slot}`

/** The slot whose tap has this name; none when no slot's does. */
export const slotOfTap = (name: string): number | undefined => {
  const digits = /^nbr(0|[1-9]\d{0,5})$/u.exec(name)?.[1]
  return digits !== undefined && Number(digits) < MAX_SLOTS ? Number(digits) : undefined
}

/** The MAC of the host's end: always the same, so that a guest that slept knows its gateway still. */
export const gatewayMac = (slot: number): string => slotAddresses(slot).mac.replace(/^02:00/u, "02:01")

/** Fails for a slot that does not exist, and for what is no port. Every port of the guest is reached. */
export const tapLink = (slot: number, ports: ReadonlyArray<number>): Result.Result<TapLink, NetworkError> =>
  Result.map(slotLink(slot, ports), (link) => ({ kind: "tap", ifname: tapName(slot), ...link }))
