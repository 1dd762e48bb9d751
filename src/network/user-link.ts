/** The link of a guest on QEMU's user network. */
import { Result } from "effect"
import type { NetworkError, UserLink } from "../services/Network.ts"
import { slotAddresses } from "./addresses.ts"
import { slotLink } from "./slot-link.ts"

/** A port that is named twice is one. Fails for a slot that does not exist, and for what is no port. */
export const userLink = (slot: number, ports: ReadonlyArray<number>): Result.Result<UserLink, NetworkError> =>
  Result.map(slotLink(slot, ports), (link) => ({
    kind: "user",
    ...link,
    ports: [...new Set(ports)],
    reachAddress: slotAddresses(slot).loopback
  }))
