/** The characters of HTTP/1.1 (RFC 9110 section 5, RFC 9112 sections 2 to 5), as tables over bytes. */

export const HT = 0x09
export const LF = 0x0a
export const CR = 0x0d
export const SP = 0x20
export const COLON = 0x3a

const table = (...members: ReadonlyArray<string | readonly [from: number, to: number]>): Uint8Array => {
  const bytes = new Uint8Array(256)
  for (const member of members) {
    if (typeof member === "string") for (const character of member) bytes[character.charCodeAt(0)] = 1
    else bytes.fill(1, member[0], member[1] + 1)
  }
  return bytes
}

const LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
const DIGITS = "0123456789"

/** `tchar`: methods and field names. */
export const TOKEN = table("!#$%&'*+-.^_`|~", LETTERS, DIGITS)
/** What a request target may hold: no control character and no space. Bytes above ASCII are passed on as they are. */
export const TARGET = table([0x21, 0x7e], [0x80, 0xff])
/** What a field value, a reason phrase or a chunk extension may hold. */
export const TEXT = table([HT, HT], [SP, 0x7e], [0x80, 0xff])
/** What a hostname in a Host field may hold, before its port. Narrower than RFC 3986, which allows what no hostname has. */
export const HOST = table("-._", LETTERS, DIGITS)
/** What an address in brackets may hold. */
export const ADDRESS = table(":.", "abcdefABCDEF", DIGITS)

/** The value of a hexadecimal digit, 255 for any other byte. */
export const HEX = new Uint8Array(256).fill(255)
for (let value = 0; value < 16; value++) {
  const digit = value.toString(16)
  HEX[digit.charCodeAt(0)] = value
  HEX[digit.toUpperCase().charCodeAt(0)] = value
}

/** Whether the bytes spell `lower`, which is in lower case and has no other characters than letters and dashes. */
export const spells = (bytes: Uint8Array, start: number, lower: Uint8Array): boolean => {
  for (let i = 0; i < lower.length; i++) {
    // setting bit 5 turns capital letters into small ones and leaves a dash as it is
    if (((bytes[start + i] as number) | 0x20) !== lower[i]) return false
  }
  return true
}

export const ascii = (text: string): Uint8Array => Uint8Array.from(text, (c) => c.charCodeAt(0))
