/** IP addresses and ranges as patterns, so that the decoder and the JSON Schema take the same texts. */

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

/** Why a text is no range of the family, or nothing when it is one. */
export const rangeProblem = (text: string, family: 4 | 6): string | undefined => {
  const [pattern, other] = family === 4 ? [IPV4_ADDRESS, IPV6_ADDRESS] : [IPV6_ADDRESS, IPV4_ADDRESS]
  const widest = family === 4 ? 32 : 128
  const slash = text.indexOf("/")
  if (slash === -1) return `has no length: write it as address/length, with a length from 0 to ${widest}`
  const address = text.slice(0, slash)
  const length = text.slice(slash + 1)
  if (other.test(address)) return `is an IPv${family === 4 ? 6 : 4} range, but this list is for IPv${family}`
  if (!pattern.test(address)) return `does not start with an IPv${family} address`
  if (!/^(?:0|[1-9]\d*)$/u.test(length)) return "has a length that is not a whole number"
  return Number(length) > widest
    ? `has the length ${length.slice(0, 20)}, but an IPv${family} range has at most ${widest}`
    : undefined
}
