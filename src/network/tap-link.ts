/** The link of a guest behind a tap of the host's kernel. */
import { Result } from "effect"
import { NetworkError, type TapLink } from "../services/Network.ts"
import { MAX_SLOTS, SLOT_PREFIX_LENGTH, slotAddresses } from "./addresses.ts"
import { isPort } from "./user-link.ts"

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
export const tapLink = (slot: number, ports: ReadonlyArray<number>): Result.Result<TapLink, NetworkError> => {
  const refused = (reason: string) => Result.fail(new NetworkError({ slot, reason }))
  if (!Number.isInteger(slot) || slot < 0 || slot >= MAX_SLOTS) {
    return refused(`the slots are those from 0 to ${MAX_SLOTS - 1}`)
  }
  const wrong = ports.find((port) => !isPort(port))
  if (wrong !== undefined) return refused(`${wrong} is no port`)
  const addresses = slotAddresses(slot)
  return Result.succeed({
    kind: "tap",
    ifname: tapName(slot),
    mac: addresses.mac,
    guestAddress: addresses.guest,
    hostAddress: addresses.host,
    prefixLength: SLOT_PREFIX_LENGTH
  })
}
