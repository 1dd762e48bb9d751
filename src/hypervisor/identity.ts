/** Who the VMM of a slot is to the kernel: a user and a group of its own, that nothing else on the host runs as. */
import { MAX_SLOTS } from "../network/addresses.ts"

/** Ids that belong to a slot: its VMM runs as them, and what only that VMM may open belongs to them. */
export interface VmmIdentity {
  readonly uid: number
  readonly gid: number
}

/** The whole range of ids that VMMs run as. */
export interface IdRange {
  /** The ids of slot 0. */
  readonly base: number
  /** How many slots have ids. */
  readonly count: number
}

/** Where the host's administrator has set no range aside: far above what Linux gives to people, services and containers. */
export const DEFAULT_ID_RANGE: IdRange = { base: 0x7000_0000, count: MAX_SLOTS }

/** The name whose range in `/etc/subuid` is the VMMs'. */
export const ID_RANGE_OWNER = "nibrunner"

/** 65534 is nobody, and from there on 16 bits are not enough; the last id, 2^32 - 1, means none. */
const FIRST_FIT = 65_536
const LAST_FIT = 2 ** 32 - 2

/** User and group of the slot's VMM, `base + slot`. A slot outside of 0 to `MAX_SLOTS - 1` is a defect of the caller. */
export const vmmIdentity = (base: number, slot: number): VmmIdentity => {
  if (!Number.isInteger(slot) || slot < 0 || slot >= MAX_SLOTS) {
    throw new RangeError(`slot ${slot} is not between 0 and ${MAX_SLOTS - 1}`)
  }
  return { uid: base + slot, gid: base + slot }
}

/**
 * The range that a text in the format of subuid(5) (`name:first:count` a line) sets aside for VMMs: the first that names
 * them. Where none does, `DEFAULT_ID_RANGE`. A string: the line that does cannot be used, and why.
 */
export const readIdRange = (subuid: string): IdRange | string => {
  const line = subuid.split("\n").find((candidate) => candidate.startsWith(`${ID_RANGE_OWNER}:`))
  if (line === undefined) return DEFAULT_ID_RANGE
  const [, first, length, ...more] = line.trim().split(":")
  if (more.length > 0 || !isDecimal(first) || !isDecimal(length)) {
    return `the line ${JSON.stringify(line.slice(0, 80))} is not NAME:FIRST:COUNT`
  }
  const [base, count] = [Number(first), Number(length)]
  if (count < 1 || base < FIRST_FIT || base + count - 1 > LAST_FIT) {
    return `the range of ${ID_RANGE_OWNER} has to lie between ${FIRST_FIT} and ${LAST_FIT}`
  }
  return { base, count: Math.min(count, MAX_SLOTS) }
}

const isDecimal = (text: string | undefined): text is string => /^\d{1,10}$/u.test(text ?? "")
