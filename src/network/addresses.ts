/**
 * Addresses by slot: 10.201.0.0/16 is cut into one /30 per slot, of which the first usable address is the
 * host's end (the guest's gateway) and the second the guest's.
 */

/** Slots that 10.201.0.0/16 has room for: 16384. */
export const MAX_SLOTS = 1 << 14

/** The length of each slot's network prefix. */
export const SLOT_PREFIX_LENGTH = 30

export interface SlotAddresses {
  /** The /30 itself, in the form `10.201.0.4/30`. */
  readonly network: string
  /** The host's end of the link: the guest's gateway. */
  readonly host: string
  readonly guest: string
  /** The guest's address with 127 for 10: where a host without taps finds the guest, on loopback. */
  readonly loopback: string
  /** The host's end with 127 for 10: where such a host finds the guest's ports below 1024. */
  readonly lowLoopback: string
  /** Locally administered, and unique on the host: `02:00` and the four bytes of the guest's address. */
  readonly mac: string
}

const SECOND_OCTET = 201

const dotted = (first: number, offset: number) => `${first}.${SECOND_OCTET}.${offset >> 8}.${offset & 0xff}`

const hex = (byte: number) => byte.toString(16).padStart(2, "0")

/** Addresses of a slot, a whole number from 0 to `MAX_SLOTS - 1`; any other is a defect of the caller. */
export const slotAddresses = (slot: number): SlotAddresses => {
  if (!Number.isInteger(slot) || slot < 0 || slot >= MAX_SLOTS) {
    throw new RangeError(`slot ${slot} is not between 0 and ${MAX_SLOTS - 1}`)
  }
  const base = slot * 4
  const guest = base + 2
  return {
    network: `${dotted(10, base)}/${SLOT_PREFIX_LENGTH}`,
    host: dotted(10, base + 1),
    guest: dotted(10, guest),
    loopback: dotted(127, guest),
    lowLoopback: dotted(127, base + 1),
    mac: ["02", "00", hex(10), hex(SECOND_OCTET), hex(guest >> 8), hex(guest & 0xff)].join(":")
  }
}

/** The slot whose guest has this address; none when it is no guest's. */
export const slotOfGuest = (address: string): number | undefined => {
  const [, third, fourth] = /^10\.201\.(\d{1,3})\.(\d{1,3})$/u.exec(address) ?? []
  if (third === undefined || fourth === undefined || Number(third) > 255 || Number(fourth) > 255)
    return undefined
  const offset = Number(third) * 256 + Number(fourth) - 2
  return offset >= 0 && offset % 4 === 0 ? offset / 4 : undefined
}
