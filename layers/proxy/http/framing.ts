/**
 * How the body of a message is delimited, as its head says (RFC 9112 section 6). Outside Effect: this is the data
 * path.
 *
 * A message that says it twice is refused, even where it says the same: two programs could believe different ones.
 */
import { CONTENT_LENGTH, TRANSFER_ENCODING } from "./fields.ts"
import { ascii, spells } from "./grammar.ts"
import type { HeadReader } from "./head.ts"

/** No Content-Length and no Transfer-Encoding. */
export const UNSAID = -1
export const CHUNKED = -2
/** The message must be refused with 400; `framingProblem` of the result says why. */
export const TWO_LENGTHS = -3
export const LENGTH_AND_CODING = -4
export const BAD_LENGTH = -5
export const BAD_CODING = -6
export const CODING_IN_HTTP_1_0 = -7
/** Chunked, but something else before it: 501. */
export const UNKNOWN_CODING = -8

const chunked = ascii("chunked")
/** Fifteen digits stay within the integers that a number holds exactly. */
const MAX_LENGTH_DIGITS = 15

/** The body's length in bytes, `UNSAID`, `CHUNKED`, or one of the refusals, which are all less than `CHUNKED`. */
export const readFraming = (head: HeadReader, bytes: Buffer, base: number): number => {
  let lengthField = -1
  let codingField = -1
  let codings = 0
  for (let field = 0; field < head.fieldCount; field++) {
    const id = head.id(field)
    if (id === CONTENT_LENGTH) {
      if (lengthField !== -1) return TWO_LENGTHS
      lengthField = field
    } else if (id === TRANSFER_ENCODING) {
      codingField = field
      codings++
    }
  }
  if (codingField === -1) return lengthField === -1 ? UNSAID : readLength(head, bytes, base, lengthField)
  if (lengthField !== -1) return LENGTH_AND_CODING
  if (head.minorVersion === 0) return CODING_IN_HTTP_1_0
  return codings === 1 ? readCoding(head, bytes, base, codingField) : BAD_CODING
}

const readLength = (head: HeadReader, bytes: Buffer, base: number, field: number): number => {
  const start = base + head.valueStart(field)
  const end = base + head.valueEnd(field)
  if (end === start || end - start > MAX_LENGTH_DIGITS) return BAD_LENGTH
  let length = 0
  for (let i = start; i < end; i++) {
    const digit = (bytes[i] as number) - 0x30
    if (digit < 0 || digit > 9) return BAD_LENGTH
    length = length * 10 + digit
  }
  return length
}

const readCoding = (head: HeadReader, bytes: Buffer, base: number, field: number): number => {
  const start = base + head.valueStart(field)
  const end = base + head.valueEnd(field)
  if (end - start === chunked.length && spells(bytes, start, chunked)) return CHUNKED
  const codings = bytes
    .toString("latin1", start, end)
    .split(",")
    .map((coding) => coding.trim().toLowerCase())
  const last = codings.pop()
  return last === "chunked" &&
    codings.length > 0 &&
    codings.every((coding) => /^[a-z]+$/u.test(coding)) &&
    !codings.includes("chunked")
    ? UNKNOWN_CODING
    : BAD_CODING
}

/** The sentence for a refusal of `readFraming`. */
export const framingProblem = (framing: number): string => {
  switch (framing) {
    case TWO_LENGTHS:
      return "there are two Content-Length fields"
    case LENGTH_AND_CODING:
      return "there are both Content-Length and Transfer-Encoding"
    case BAD_LENGTH:
      return "the Content-Length is not a number of bytes"
    case CODING_IN_HTTP_1_0:
      return "HTTP/1.0 has no Transfer-Encoding"
    case UNKNOWN_CODING:
      return "the only transfer coding that is understood is chunked"
    default:
      return "the Transfer-Encoding is not exactly chunked"
  }
}
