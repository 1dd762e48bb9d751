/** Ranges of IPv4 addresses, and those that no guest ever opens a flow to. */

/** 32 bits, as a number from 0 on. */
const bitsOf = (address: string): number =>
  address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0)

const dotted = (bits: number): string =>
  [24, 16, 8, 0].map((shift) => Math.floor(bits / 2 ** shift) % 256).join(".")

/** The range in its plain form: `10.1.2.3/8` is `10.0.0.0/8`. The text is one that the configuration takes. */
export const plainRange = (range: string): string => {
  const [address = "", length = ""] = range.split("/")
  const size = 2 ** (32 - Number(length))
  return `${dotted(Math.floor(bitsOf(address) / size) * size)}/${Number(length)}`
}

/** Whether an address lies in a range. */
export const inRange = (address: string, range: string): boolean => {
  const [first = "", length = ""] = range.split("/")
  const size = 2 ** (32 - Number(length))
  return Math.floor(bitsOf(address) / size) === Math.floor(bitsOf(first) / size)
}

/**
 * What no guest opens a flow to, whatever the configuration says: the host and its neighbours, other guests,
 * metadata services, and what is no address of one machine on the internet. Source: RFC 6890, RFC 5771.
 */
export const NEVER_REACHED: ReadonlyArray<string> = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "224.0.0.0/4",
  "240.0.0.0/4"
]
