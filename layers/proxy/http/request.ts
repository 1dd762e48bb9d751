/**
 * What a complete request head asks for, and the head that goes on to the app. Outside Effect: this is the data
 * path.
 */
import { readConnection, SAYS_CLOSE, SAYS_KEEP_ALIVE, SAYS_UPGRADE } from "./connection-field.ts"
import {
  CONNECTION,
  EXPECT,
  FORWARDED_FOR,
  FORWARDED_HOST,
  FORWARDED_PROTO,
  HOP_BY_HOP,
  HOST_FIELD,
  LOOKALIKE,
  NOMINATED,
  OTHER,
  TRANSFER_ENCODING,
  UPGRADE
} from "./fields.ts"
import { CHUNKED, framingProblem, readFraming, UNKNOWN_CODING, UNSAID } from "./framing.ts"
import { ascii, spells } from "./grammar.ts"
import type { HeadReader } from "./head.ts"
import { nameEnd, parseAbsolute, parseAuthority, sameAuthority, withoutFinalDot } from "./host.ts"

/** Who sends the request, as the app is told. */
export interface Peer {
  readonly address: string
  readonly proto: "http" | "https"
}

const get = ascii("get")
const head = ascii("head")
const SLASH = 0x2f
const ASTERISK = 0x2a
const CAPITAL_A = 0x41
const CAPITAL_Z = 0x5a

/** Sent twice they do what they do sent once (RFC 9110 section 9.2.2). */
const idempotentMethods = new Set(["OPTIONS", "TRACE", "PUT", "DELETE"])

export class RequestHead {
  /** 0, or the status to refuse with. */
  problem = 0
  reason = ""
  /** Lowercase, without the port and the final dot: what the request is routed by. */
  host = ""
  isHead = false
  idempotent = false
  http10 = false
  keepAlive = false
  /** Asks to switch protocols, in a way that is passed on. */
  upgrade = false
  /** Bytes of body, `CHUNKED`, or `UNSAID`. */
  framing = UNSAID

  #target = ""
  #authority = ""

  /** Fills this in from a complete head. False: the request must be refused, see `problem`. */
  read(reader: HeadReader, bytes: Buffer, base: number): boolean {
    this.problem = 0
    this.#target = ""
    this.#authority = ""
    this.http10 = reader.minorVersion === 0
    this.framing = readFraming(reader, bytes, base)
    if (this.framing < CHUNKED) {
      return this.#refuse(this.framing === UNKNOWN_CODING ? 501 : 400, framingProblem(this.framing))
    }
    if (!this.#readMethod(reader, bytes, base)) return false
    if (!this.#readHost(reader, bytes, base)) return false
    const says = readConnection(reader, bytes, base)
    this.keepAlive = (says & SAYS_CLOSE) === 0 && (!this.http10 || (says & SAYS_KEEP_ALIVE) !== 0)
    this.upgrade = (says & SAYS_UPGRADE) !== 0 && !this.http10 && this.#upgradeIsPassedOn(reader, bytes, base)
    return true
  }

  /**
   * The head that goes on to the app: its lines as they came, without those that were meant for this hop, and
   * with those by which the app knows who asks.
   */
  forwarded(reader: HeadReader, bytes: Buffer, base: number, peer: Peer): string {
    let forwardedFor = -1
    let host = -1
    let own = ""
    let proto = `x-forwarded-proto: ${peer.proto}\r\n`
    let forwardedHost = true
    for (let field = 0; field < reader.fieldCount; field++) {
      const id = reader.id(field)
      if (id === HOST_FIELD) host = field
      else if (id === FORWARDED_FOR && !isEmpty(reader, field)) forwardedFor = field
      else if (id === FORWARDED_PROTO) proto = ""
      else if (id === FORWARDED_HOST) forwardedHost = false
    }
    if (forwardedFor === -1) own = `x-forwarded-for: ${peer.address}\r\n`
    const authority =
      host === -1
        ? this.#authority
        : bytes.toString("latin1", base + reader.valueStart(host), base + reader.valueEnd(host))
    own += proto
    if (forwardedHost) own += `x-forwarded-host: ${authority}\r\n`
    if (host === -1) own += `host: ${authority}\r\n`
    if (this.framing === CHUNKED) own += "transfer-encoding: chunked\r\n"
    if (this.upgrade) own += "connection: upgrade\r\n"
    return `${this.#keptLines(reader, bytes, base, forwardedFor, peer)}${own}\r\n`
  }

  /** The request line and the fields that are passed on; the peer's address is added to the last X-Forwarded-For. */
  #keptLines(reader: HeadReader, bytes: Buffer, base: number, forwardedFor: number, peer: Peer): string {
    let text = ""
    let from = reader.start
    if (this.#target !== "" || this.http10) {
      text = this.#requestLine(reader, bytes, base)
      from = reader.fieldsStart
    }
    for (let field = 0; field < reader.fieldCount; field++) {
      const id = reader.id(field)
      if (id === OTHER || id === HOST_FIELD) continue
      if (field === forwardedFor) {
        text += `${bytes.toString("latin1", base + from, base + reader.valueEnd(field))}, ${peer.address}`
        from = reader.valueEnd(field)
      } else if (this.#isDropped(id) || (id === FORWARDED_FOR && isEmpty(reader, field))) {
        const start = reader.nameStart(field)
        if (from < start) text += bytes.toString("latin1", base + from, base + start)
        from = reader.lineEnd(field)
      }
    }
    const end = reader.length - 2
    return from < end ? text + bytes.toString("latin1", base + from, base + end) : text
  }

  #requestLine(reader: HeadReader, bytes: Buffer, base: number): string {
    const method = bytes.toString("latin1", base + reader.start, base + reader.methodEnd)
    const target =
      this.#target || bytes.toString("latin1", base + reader.targetStart, base + reader.targetEnd)
    return `${method} ${target} HTTP/1.1\r\n`
  }

  #isDropped(id: number): boolean {
    if (id === EXPECT) return this.http10
    if (id === UPGRADE) return !this.upgrade
    return (
      id === CONNECTION ||
      id === TRANSFER_ENCODING ||
      id === HOP_BY_HOP ||
      id === NOMINATED ||
      id === LOOKALIKE
    )
  }

  #readMethod(reader: HeadReader, bytes: Buffer, base: number): boolean {
    const start = base + reader.start
    const length = reader.methodEnd - reader.start
    this.isHead = false
    if (length === get.length && isUpper(bytes, start, length) && spells(bytes, start, get)) {
      this.idempotent = true
      return true
    }
    if (length === head.length && isUpper(bytes, start, length) && spells(bytes, start, head)) {
      this.idempotent = true
      this.isHead = true
      return true
    }
    const method = bytes.toString("latin1", start, start + length)
    this.idempotent = idempotentMethods.has(method)
    return method !== "CONNECT" || this.#refuse(400, "CONNECT is for proxies of another kind")
  }

  #readHost(reader: HeadReader, bytes: Buffer, base: number): boolean {
    let hostField = -1
    for (let field = 0; field < reader.fieldCount; field++) {
      if (reader.id(field) !== HOST_FIELD) continue
      if (hostField !== -1) return this.#refuse(400, "there are two Host fields")
      hostField = field
    }
    if (hostField === -1) {
      return this.http10 && bytes[base + reader.targetStart] !== SLASH
        ? this.#readTarget(reader, bytes, base, undefined)
        : this.#refuse(400, "there is no Host field")
    }
    const start = base + reader.valueStart(hostField)
    const end = base + reader.valueEnd(hostField)
    const at = nameEnd(bytes, start, end)
    if (at === -1) return this.#refuse(400, "the Host field is not a hostname")
    const name = bytes.toString("latin1", start, withoutFinalDot(bytes, start, at))
    this.host = hasUpper(bytes, start, at) ? name.toLowerCase() : name
    if (bytes[base + reader.targetStart] === SLASH) return true
    return this.#readTarget(reader, bytes, base, bytes.toString("latin1", start, end))
  }

  /** A target that is not just a path. `host`: the Host field's value. */
  #readTarget(reader: HeadReader, bytes: Buffer, base: number, host: string | undefined): boolean {
    const target = bytes.toString("latin1", base + reader.targetStart, base + reader.targetEnd)
    const method = bytes.toString("latin1", base + reader.start, base + reader.methodEnd)
    if (target.length === 1 && bytes[base + reader.targetStart] === ASTERISK) {
      if (host === undefined) return this.#refuse(400, "there is no Host field")
      return method === "OPTIONS" || this.#refuse(400, "only OPTIONS is asked of the whole server")
    }
    const absolute = parseAbsolute(target)
    if (absolute === undefined) return this.#refuse(400, "the target is neither a path nor a URL")
    const said = host === undefined ? absolute.authority : parseAuthority(host)
    if (said === undefined || !sameAuthority(said, absolute.authority, absolute.scheme)) {
      return this.#refuse(400, "the target and the Host field name different hosts")
    }
    this.host = absolute.authority.name
    this.#authority = absolute.authority.port === "" ? this.host : `${this.host}:${absolute.authority.port}`
    this.#target = method === "OPTIONS" && absolute.path === "" ? "*" : absolute.path || "/"
    return true
  }

  /**
   * Whether the switch of protocols is passed on. Not with a body, whose end would be in doubt; and not to
   * HTTP/2, in which requests would pass through the tunnel that nobody here has looked at.
   */
  #upgradeIsPassedOn(reader: HeadReader, bytes: Buffer, base: number): boolean {
    if (this.framing === CHUNKED || this.framing > 0) return false
    let asked = false
    for (let field = 0; field < reader.fieldCount; field++) {
      if (reader.id(field) !== UPGRADE) continue
      const value = bytes.toString("latin1", base + reader.valueStart(field), base + reader.valueEnd(field))
      if (/(^|,)\s*h2c?\s*(\/|,|$)/iu.test(value)) return false
      asked = asked || value !== ""
    }
    return asked
  }

  #refuse(status: number, reason: string): false {
    this.problem = status
    this.reason = reason
    return false
  }
}

const isEmpty = (reader: HeadReader, field: number) => reader.valueStart(field) === reader.valueEnd(field)

const hasUpper = (bytes: Uint8Array, start: number, end: number): boolean => {
  for (let i = start; i < end; i++) {
    if ((bytes[i] as number) >= CAPITAL_A && (bytes[i] as number) <= CAPITAL_Z) return true
  }
  return false
}

const isUpper = (bytes: Uint8Array, start: number, length: number): boolean => {
  for (let i = start; i < start + length; i++) {
    if ((bytes[i] as number) < CAPITAL_A || (bytes[i] as number) > CAPITAL_Z) return false
  }
  return true
}
