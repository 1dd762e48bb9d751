/** Which ports of the host belong to which slot. */

/** The first port of slot 0. */
export const FIRST_SLOT_PORT = 21000
/** One for HTTP and seven raw ones. */
export const PORTS_PER_SLOT = 8
/** The most raw ports that an app can have. */
export const MAX_RAW_PORTS = PORTS_PER_SLOT - 1
/** The most apps whose ports fit between the first slot port and 65535. */
export const MAX_SLOTS = Math.floor((65535 - FIRST_SLOT_PORT + 1) / PORTS_PER_SLOT)

/** The port of the host on which the HTTP of the app in a slot is reached. Slots count from 0. */
export const httpPortOfSlot = (slot: number): number => FIRST_SLOT_PORT + PORTS_PER_SLOT * slot

/** The port of the host for the raw port at a position of the app's `ports`; positions count from 0, up to 6. */
export const rawPortAfter = (httpPort: number, position: number): number => httpPort + 1 + position

/** The same, by the app's slot. */
export const rawPortOfSlot = (slot: number, position: number): number =>
  rawPortAfter(httpPortOfSlot(slot), position)

/** The ports of a host with so many slots, both ends included. */
export const slotPortRange = (maxApps: number): { readonly first: number; readonly last: number } => ({
  first: FIRST_SLOT_PORT,
  last: httpPortOfSlot(maxApps) - 1
})
