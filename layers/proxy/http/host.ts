/** Whom a request is for: Host fields and absolute targets. Outside Effect: this is the data path. */
import { ADDRESS, COLON, HOST } from "./grammar.ts"

const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const DOT = 0x2e
const MAX_PORT_DIGITS = 5

export interface Authority {
  /** Lowercase, without the port and the final dot. */
  readonly name: string
  /** Digits, or empty. */
  readonly port: string
}

/** Where the name of a `host[:port]` ends, or -1 when it is none. An empty name is none. */
export const nameEnd = (bytes: Uint8Array, start: number, end: number): number => {
  let i = start
  if (bytes[i] === OPEN_BRACKET && i < end) {
    i++
    while (i < end && ADDRESS[bytes[i] as number] === 1) i++
    if (i === end || bytes[i] !== CLOSE_BRACKET) return -1
    i++
  } else {
    while (i < end && HOST[bytes[i] as number] === 1) i++
  }
  if (i === start) return -1
  if (i === end) return i
  if (bytes[i] !== COLON) return -1
  return isPort(bytes, i + 1, end) ? i : -1
}

/** Where the name ends that `end` is the end of, without the dot that makes a name absolute: it is the same host's. */
export const withoutFinalDot = (bytes: Uint8Array, start: number, end: number): number =>
  end - start > 1 && bytes[end - 1] === DOT ? end - 1 : end

const isPort = (bytes: Uint8Array, start: number, end: number): boolean => {
  if (end - start > MAX_PORT_DIGITS) return false
  let port = 0
  for (let i = start; i < end; i++) {
    const digit = (bytes[i] as number) - 0x30
    if (digit < 0 || digit > 9) return false
    port = port * 10 + digit
  }
  return port <= 65_535
}

/** The authority that the text is, or undefined when it is none. */
export const parseAuthority = (text: string): Authority | undefined => {
  const bytes = Buffer.from(text, "latin1")
  const at = nameEnd(bytes, 0, bytes.length)
  if (at === -1) return undefined
  const name = text.slice(0, withoutFinalDot(bytes, 0, at))
  return { name: name.toLowerCase(), port: text.slice(at + 1) }
}

export interface AbsoluteTarget {
  readonly authority: Authority
  readonly scheme: "http" | "https"
  /** Path and query; empty when the URL ends after its authority. */
  readonly path: string
}

/** Reads `http://host[:port]/path?query`; undefined when the target is not of this form. */
export const parseAbsolute = (target: string): AbsoluteTarget | undefined => {
  const parts = /^(https?):\/\/([^/?#]*)(.*)$/isu.exec(target)
  const authority = parseAuthority(parts?.[2] ?? "")
  if (parts === null || authority === undefined) return undefined
  const rest = parts[3] ?? ""
  return {
    authority,
    scheme: parts[1]?.toLowerCase() === "https" ? "https" : "http",
    path: rest === "" || rest.startsWith("/") ? rest : `/${rest}`
  }
}

/** Whether both name the same host and, with the scheme's own port where none is named, the same port. */
export const sameAuthority = (a: Authority, b: Authority, scheme: "http" | "https"): boolean => {
  const usual = scheme === "https" ? "443" : "80"
  return a.name === b.name && Number(a.port || usual) === Number(b.port || usual)
}
