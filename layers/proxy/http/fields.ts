/** The header fields that mean something to a proxy. Every other one is passed on as it is. */
import { ascii, spells } from "./grammar.ts"

export const OTHER = 0
export const HOST_FIELD = 1
export const CONTENT_LENGTH = 2
export const TRANSFER_ENCODING = 3
export const CONNECTION = 4
export const UPGRADE = 5
export const EXPECT = 6
export const FORWARDED_FOR = 7
export const FORWARDED_PROTO = 8
export const FORWARDED_HOST = 9
/** Meant for one hop only, and of no meaning to this one. */
export const HOP_BY_HOP = 10
/** Named by a Connection field, and so meant for this hop only. */
export const NOMINATED = 11

/**
 * One of the others with `_` for `-`. It is none of them here, but in the environment of a CGI, WSGI or PHP program both
 * have one name, so that it would pass there for what this proxy says, or takes care of.
 */
export const LOOKALIKE = 12

interface Known {
  readonly name: Uint8Array
  readonly id: number
}

const known: ReadonlyArray<readonly [name: string, id: number]> = [
  ["host", HOST_FIELD],
  ["content-length", CONTENT_LENGTH],
  ["transfer-encoding", TRANSFER_ENCODING],
  ["connection", CONNECTION],
  ["upgrade", UPGRADE],
  ["expect", EXPECT],
  ["x-forwarded-for", FORWARDED_FOR],
  ["x-forwarded-proto", FORWARDED_PROTO],
  ["x-forwarded-host", FORWARDED_HOST],
  ["keep-alive", HOP_BY_HOP],
  ["proxy-connection", HOP_BY_HOP],
  ["proxy-authenticate", HOP_BY_HOP],
  ["proxy-authorization", HOP_BY_HOP],
  ["te", HOP_BY_HOP],
  ["trailer", HOP_BY_HOP]
]

const DASH = 0x2d
const UNDERSCORE = 0x5f

const byLength: Array<ReadonlyArray<Known> | undefined> = []
for (const [name, id] of known) {
  byLength[name.length] = [...(byLength[name.length] ?? []), { name: ascii(name), id }]
}
const LONGEST = byLength.length - 1

/** Which field a name is, whatever its case. */
export const fieldId = (bytes: Uint8Array, start: number, end: number): number => {
  const length = end - start
  if (length > LONGEST) return OTHER
  const candidates = byLength[length]
  if (candidates === undefined) return OTHER
  for (const candidate of candidates) {
    if (spells(bytes, start, candidate.name)) return candidate.id
  }
  for (const { name } of candidates) {
    if (resembles(bytes, start, name)) return LOOKALIKE
  }
  return OTHER
}

/** Whether the bytes spell `lower` with some of its dashes as underscores. */
const resembles = (bytes: Uint8Array, start: number, lower: Uint8Array): boolean => {
  for (let i = 0; i < lower.length; i++) {
    const byte = bytes[start + i] as number
    if ((byte | 0x20) !== lower[i] && !(byte === UNDERSCORE && lower[i] === DASH)) return false
  }
  return true
}

/**
 * Whether a trailer section may carry the field on to the next hop: not what frames a message, routes it,
 * authenticates, or says how the content is to be read (RFC 9110 section 6.5.1).
 */
export const allowedInTrailer = (lowerName: string, id: number): boolean =>
  id === OTHER && !notInTrailer.has(lowerName)

const notInTrailer = new Set([
  "authorization",
  "cache-control",
  "content-encoding",
  "content-range",
  "content-type",
  "cookie",
  "expires",
  "max-forwards",
  "range",
  "retry-after",
  "set-cookie",
  "vary",
  "www-authenticate"
])
