/** The link of a guest on QEMU's user network. */
import { Result } from "effect"
import { NetworkError, type UserLink } from "../services/Network.ts"
import { MAX_SLOTS, SLOT_PREFIX_LENGTH, slotAddresses } from "./addresses.ts"

/** Whether a number is a port of TCP or UDP. */
export const isPort = (port: number) => Number.isInteger(port) && port >= 1 && port <= 65535

/** A port that is named twice is one. Fails for a slot that does not exist, and for what is no port. */
export const userLink = (
  slot: number,
  ports: ReadonlyArray<number>
): Result.Result<UserLink, NetworkError> => {
  const refused = (reason: string) => Result.fail(new NetworkError({ slot, reason }))
  if (!Number.isInteger(slot) || slot < 0 || slot >= MAX_SLOTS) {
    return refused(`the slots are those from 0 to ${MAX_SLOTS - 1}`)
  }
  const wrong = ports.find((port) => !isPort(port))
  if (wrong !== undefined) return refused(`${wrong} is no port`)
  const addresses = slotAddresses(slot)
  return Result.succeed({
    kind: "user",
    mac: addresses.mac,
    guestAddress: addresses.guest,
    hostAddress: addresses.host,
    prefixLength: SLOT_PREFIX_LENGTH,
    ports: [...new Set(ports)],
    reachAddress: addresses.loopback
  })
}
