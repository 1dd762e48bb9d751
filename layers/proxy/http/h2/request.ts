/**
 * Requests of HTTP/2 as heads of HTTP/1.1, which are then read as strictly as any other. Outside Effect: this is the
 * data path.
 */
import { TARGET, TEXT, TOKEN } from "../grammar.ts"

/** A request as it comes: names and values by turns, one byte per character, pseudo-header fields first. */
export type HeaderList = ReadonlyArray<string>

export interface Http2Head {
  /** The whole head in HTTP/1.1, one byte per character. */
  readonly text: string
  /** It opens a WebSocket (RFC 8441). */
  readonly isWebSocket: boolean
}

/** Why a request is refused. */
export interface Http2Problem {
  readonly status: number
  readonly reason: string
}

const malformed = (reason: string): Http2Problem => ({ status: 400, reason })

/** Fields that HTTP/2 has no use for, and that would mean something in HTTP/1.1 (RFC 9113 section 8.2.2). */
const connectionFields = new Set([
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-connection",
  "transfer-encoding",
  "upgrade"
])

const PSEUDO = new Set([":method", ":scheme", ":authority", ":path", ":protocol"])

/**
 * `ends`: no body follows. `webSocketKey`: what the app is to answer an opening WebSocket with, which in HTTP/2 the
 * caller does not send.
 */
export const toHead = (
  list: HeaderList,
  ends: boolean,
  webSocketKey: () => string
): Http2Head | Http2Problem => {
  const pseudo = new Map<string, string>()
  const cookies: Array<string> = []
  let host: string | undefined
  let fields = ""
  let sized = false
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] ?? ""
    const value = list[i + 1] ?? ""
    if (!consistsOf(value, TEXT)) return malformed(`the field ${printable(name)} holds a control character`)
    if (name.startsWith(":")) {
      if (!PSEUDO.has(name) || pseudo.has(name))
        return malformed(`${printable(name)} is unknown, or comes twice`)
      pseudo.set(name, value)
    } else if (name === "" || !consistsOf(name, TOKEN) || name !== name.toLowerCase()) {
      return malformed("a field's name is not a word in lower case")
    } else if (connectionFields.has(name)) return malformed(`the field ${name} has no place in HTTP/2`)
    else if (name === "cookie") cookies.push(value)
    else if (name === "host") {
      if (host !== undefined) return malformed("there are two Host fields")
      host = value
    } else {
      sized ||= name === "content-length"
      fields += `${name}: ${value}\r\n`
    }
  }
  // in HTTP/2 a cookie may come in crumbs (RFC 9113 section 8.2.3)
  if (cookies.length > 0) fields += `cookie: ${cookies.join("; ")}\r\n`
  return assemble(pseudo, host, { fields, bodyFollows: !ends && !sized, webSocketKey })
}

interface Rest {
  readonly fields: string
  /** A body whose length is not said. */
  readonly bodyFollows: boolean
  readonly webSocketKey: () => string
}

const assemble = (
  pseudo: ReadonlyMap<string, string>,
  host: string | undefined,
  { fields, bodyFollows, webSocketKey }: Rest
): Http2Head | Http2Problem => {
  const method = pseudo.get(":method") ?? ""
  const path = pseudo.get(":path") ?? ""
  const protocol = pseudo.get(":protocol")
  const authority = pseudo.get(":authority") ?? host
  if (method === "" || !consistsOf(method, TOKEN)) return malformed(":method is no method")
  if (authority === undefined) return malformed("there is neither :authority nor a Host field")
  if (host !== undefined && host.toLowerCase() !== authority.toLowerCase()) {
    return malformed(":authority and the Host field name different hosts")
  }
  if (protocol !== undefined && method !== "CONNECT") return malformed(":protocol is for CONNECT only")
  if (protocol === undefined && method === "CONNECT")
    return malformed("CONNECT is for proxies of another kind")
  if (pseudo.get(":scheme") !== "https") return malformed(":scheme is not https")
  if (!(path.startsWith("/") || (path === "*" && method === "OPTIONS")) || !consistsOf(path, TARGET)) {
    return malformed(":path is no path")
  }
  if (protocol === undefined) {
    const chunked = bodyFollows ? "transfer-encoding: chunked\r\n" : ""
    return {
      text: `${method} ${path} HTTP/1.1\r\nhost: ${authority}\r\n${fields}${chunked}\r\n`,
      isWebSocket: false
    }
  }
  if (protocol !== "websocket") {
    return { status: 501, reason: "the only protocol that is carried in CONNECT is websocket" }
  }
  const opening = `upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: ${webSocketKey()}\r\n`
  return {
    text: `GET ${path} HTTP/1.1\r\nhost: ${authority}\r\n${fields}${opening}\r\n`,
    isWebSocket: true
  }
}

const consistsOf = (text: string, table: Uint8Array): boolean => {
  for (let i = 0; i < text.length; i++) {
    if (table[text.charCodeAt(i)] !== 1) return false
  }
  return true
}

const MAX_SHOWN = 64

/** A name of a stranger's as it may stand in a sentence. */
const printable = (name: string) => name.slice(0, MAX_SHOWN).replace(/[^!-~]/gu, "?")
