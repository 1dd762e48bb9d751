/** What every link has, whatever carries it. */
import { Result } from "effect"
import { NetworkError } from "../services/Network.ts"
import { MAX_SLOTS, SLOT_PREFIX_LENGTH, slotAddresses } from "./addresses.ts"

/** Whether a number is a port of TCP or UDP. */
export const isPort = (port: number) => Number.isInteger(port) && port >= 1 && port <= 65535

/** The addresses of a slot's link. Fails for a slot that does not exist, and for what is no port. */
export const slotLink = (slot: number, ports: ReadonlyArray<number>) => {
  const refused = (reason: string) => Result.fail(new NetworkError({ slot, reason }))
  if (!Number.isInteger(slot) || slot < 0 || slot >= MAX_SLOTS) {
    return refused(`the slots are those from 0 to ${MAX_SLOTS - 1}`)
  }
  const wrong = ports.find((port) => !isPort(port))
  if (wrong !== undefined) return refused(`${wrong} is no port`)
  const { mac, guest, host } = slotAddresses(slot)
  return Result.succeed({
    mac,
    guestAddress: guest,
    hostAddress: host,
    prefixLength: SLOT_PREFIX_LENGTH
  })
}
