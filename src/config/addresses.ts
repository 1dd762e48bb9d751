/**
 * IP addresses and ranges. The JSON Schema has them as patterns; the decoder takes the same texts without those, which
 * take longer to compile than a whole configuration takes to be read.
 */

const octet = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
const v4 = `${octet}(?:\\.${octet}){3}`

const group = "[0-9A-Fa-f]{1,4}"

/** At most `most` groups, with colons between them. */
const upTo = (most: number) => (most === 0 ? "" : `(?:${group}(?::${group}){0,${most - 1}})?`)

// RFC 4291, 2.2: eight groups; the last two may be written as an IPv4 address; `::` stands for at least one group.
const v6 = [
  `(?:${group}:){7}${group}`,
  `(?:${group}:){6}${v4}`,
  ...[0, 1, 2, 3, 4, 5, 6, 7].map((before) => {
    const head = before === 0 ? "" : `${group}(?::${group}){${before - 1}}`
    const after = 7 - before
    const tails = [upTo(after), ...(after >= 2 ? [`(?:${group}:){0,${after - 2}}${v4}`] : [])]
    return `${head}::(?:${tails.join("|")})`
  })
].join("|")

export const IPV4_ADDRESS = new RegExp(`^${v4}$`, "u")
export const IPV6_ADDRESS = new RegExp(`^(?:${v6})$`, "u")
export const IP_ADDRESS = new RegExp(`^(?:${v4}|${v6})$`, "u")

/** `10.0.0.0/8`. */
export const IPV4_RANGE = new RegExp(`^${v4}/(?:3[0-2]|[12]\\d|\\d)$`, "u")
/** `fc00::/7`. */
export const IPV6_RANGE = new RegExp(`^(?:${v6})/(?:12[0-8]|1[01]\\d|[1-9]\\d|\\d)$`, "u")

/** Numbers from 0 to 255, without a zero in front. */
const isOctet = (text: string): boolean => /^(?:0|[1-9]\d{0,2})$/u.test(text) && Number(text) <= 255

const isIpv4 = (text: string): boolean => {
  const octets = text.split(".")
  return octets.length === 4 && octets.every(isOctet)
}

/** How many groups of 16 bits a part of an address has; nothing when it is none. */
const groupsIn = (text: string, mayEndInIpv4: boolean): number | undefined => {
  if (text === "") return 0
  const groups = text.split(":")
  const last = groups.at(-1) ?? ""
  const embedded = mayEndInIpv4 && last.includes(".") && isIpv4(last)
  const plain = embedded ? groups.slice(0, -1) : groups
  if (!plain.every((text) => /^[0-9A-Fa-f]{1,4}$/u.test(text))) return undefined
  return plain.length + (embedded ? 2 : 0)
}

const isIpv6 = (text: string): boolean => {
  const [head = "", tail, more] = text.split("::")
  const before = groupsIn(head, tail === undefined)
  if (before === undefined || more !== undefined) return false
  if (tail === undefined) return before === 8
  const after = groupsIn(tail, true)
  return after !== undefined && before + after <= 7
}

/** Whether a text is an address of either family, without a zone. */
export const isIpAddress = (text: string): boolean => isIpv4(text) || isIpv6(text)

/** Why a text is no range of the family, or nothing when it is one. */
export const rangeProblem = (text: string, family: 4 | 6): string | undefined => {
  const [isOne, isOther] = family === 4 ? [isIpv4, isIpv6] : [isIpv6, isIpv4]
  const widest = family === 4 ? 32 : 128
  const slash = text.indexOf("/")
  if (slash === -1) return `has no length: write it as address/length, with a length from 0 to ${widest}`
  const address = text.slice(0, slash)
  const length = text.slice(slash + 1)
  if (isOther(address)) return `is an IPv${family === 4 ? 6 : 4} range, but this list is for IPv${family}`
  if (!isOne(address)) return `does not start with an IPv${family} address`
  if (!/^(?:0|[1-9]\d*)$/u.test(length)) return "has a length that is not a whole number"
  return Number(length) > widest
    ? `has the length ${length.slice(0, 20)}, but an IPv${family} range has at most ${widest}`
    : undefined
}
