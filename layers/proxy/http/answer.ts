/**
 * What a complete answer head says, and the head that goes on to the caller. Outside Effect: this is the data path.
 * The app is as much a stranger as the caller is: its answers are read as strictly as requests.
 */
import type { Framing } from "./body.ts"
import { readConnection, SAYS_CLOSE, SAYS_KEEP_ALIVE } from "./connection-field.ts"
import {
  CONNECTION,
  CONTENT_LENGTH,
  HOP_BY_HOP,
  NOMINATED,
  OTHER,
  TRANSFER_ENCODING,
  UPGRADE
} from "./fields.ts"
import { CHUNKED, framingProblem, readFraming, UNSAID } from "./framing.ts"
import type { HeadReader } from "./head.ts"

export class AnswerHead {
  reason = ""
  status = 0
  /** How the app delimits the body. */
  framing: Framing = "none"
  /** Bytes of body, with framing `length`. */
  length = 0
  /** Whether the connection to the app may carry another request after this one. */
  keepAlive = false

  /** Neither final nor a switch of protocols: another answer follows. */
  get isInterim(): boolean {
    return this.status < 200 && this.status !== 101
  }

  /** Fills this in from a complete head. False: the answer cannot be passed on, see `reason`. */
  read(reader: HeadReader, bytes: Buffer, base: number, toHead: boolean): boolean {
    this.status = reader.status
    const framing = readFraming(reader, bytes, base)
    if (framing < CHUNKED) {
      this.reason = framingProblem(framing)
      return false
    }
    const says = readConnection(reader, bytes, base)
    this.keepAlive =
      (says & SAYS_CLOSE) === 0 && (reader.minorVersion === 1 || (says & SAYS_KEEP_ALIVE) !== 0)
    this.length = 0
    if (toHead || this.status < 200 || this.status === 204 || this.status === 304) this.framing = "none"
    else if (framing === CHUNKED) this.framing = "chunked"
    else if (framing === UNSAID) {
      this.framing = "until-close"
      this.keepAlive = false
    } else {
      this.framing = "length"
      this.length = framing
    }
    return true
  }

  /**
   * The head that goes on to the caller, without its final empty line, so that the caller's own connection can
   * add how it frames the body and whether it ends.
   */
  forwarded(reader: HeadReader, bytes: Buffer, base: number): string {
    let text = ""
    let from = 0
    if (reader.minorVersion === 0) {
      text = `HTTP/1.1 ${bytes.toString("latin1", base + reader.statusStart, base + reader.fieldsStart)}`
      from = reader.fieldsStart
    }
    for (let field = 0; field < reader.fieldCount; field++) {
      const id = reader.id(field)
      if (id === OTHER || !this.#isDropped(id)) continue
      const start = reader.nameStart(field)
      if (from < start) text += bytes.toString("latin1", base + from, base + start)
      from = reader.lineEnd(field)
    }
    const end = reader.length - 2
    return from < end ? text + bytes.toString("latin1", base + from, base + end) : text
  }

  #isDropped(id: number): boolean {
    if (id === UPGRADE) return this.status !== 101
    if (id === CONTENT_LENGTH) return this.status < 200 || this.status === 204
    return id === CONNECTION || id === TRANSFER_ENCODING || id === HOP_BY_HOP || id === NOMINATED
  }
}
