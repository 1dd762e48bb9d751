/**
 * Reads the head of an HTTP/1.x message in place. Outside Effect: this is the data path.
 *
 * Every byte is looked at once, however the head is cut into pieces, and the first byte that HTTP does not allow
 * ends the reading. Nothing is repaired: line ends are CR LF and nothing else, a field has no space in front of its
 * colon, no line continues the one before. What two parsers could read in two ways is not passed on.
 *
 * A reader keeps offsets, counted from the first byte of the head, and no bytes. The caller keeps those: while the head is
 * incomplete, all of it from its first byte on.
 */
import { fieldId } from "./fields.ts"
import { COLON, CR, HT, LF, SP, TARGET, TEXT, TOKEN } from "./grammar.ts"
import { MAX_FIELDS, MAX_HEAD_BYTES, MAX_TRAILER_BYTES } from "./limits.ts"

/** More bytes are needed. Every other result that is not `COMPLETE` is the status to refuse the message with. */
export const INCOMPLETE = 0
export const COMPLETE = 1

export type HeadKind = "request" | "answer" | "trailer"

/** Integers kept for each field: where name and value start and end, and which field it is. */
const FIELD_SIZE = 5

const EMPTY_LINES = 0
const EMPTY_LINES_LF = 1
const METHOD = 2
const TARGET_START = 3
const TARGET_REST = 4
const VERSION = 5
const VERSION_CR = 6
const STATUS_SPACE = 7
const STATUS_CODE = 8
const STATUS_END = 9
const REASON = 10
const START_LINE_LF = 11
const FIELD = 12
const NAME = 13
const PADDING = 14
const VALUE = 15
const VALUE_LF = 16
const FINAL_LF = 17
const FINISHED = 18

const VERSION_PREFIX = [0x48, 0x54, 0x54, 0x50, 0x2f]
const VERSION_BYTES = 8
const ZERO = 0x30
const NINE = 0x39
const ONE = 0x31
const DOT = 0x2e

export class HeadReader {
  /** Length of the whole head in bytes, empty lines before it included. */
  length = 0
  /** Why the message was refused. */
  reason = ""
  /** The digit after `HTTP/1.`: 0 or 1. */
  minorVersion = 0
  /** Three digits; answers only. */
  status = 0
  /** Where the start line begins. */
  start = 0
  /** Requests only. */
  methodEnd = 0
  targetStart = 0
  targetEnd = 0
  /** Where the status line's code begins; answers only. */
  statusStart = 0
  /** Where the first field begins. */
  fieldsStart = 0
  fieldCount = 0

  readonly #kind: HeadKind
  readonly #limit: number
  readonly #fields = new Int32Array(MAX_FIELDS * FIELD_SIZE)
  #state = 0
  /** How much has been read. */
  #position = 0
  /** Where what is being read now began. */
  #mark = 0

  constructor(kind: HeadKind) {
    this.#kind = kind
    this.#limit = kind === "trailer" ? MAX_TRAILER_BYTES : MAX_HEAD_BYTES
    this.reset()
  }

  /** Forgets everything: the next byte is the first of a head. */
  reset(): void {
    this.length = 0
    this.reason = ""
    this.start = 0
    this.fieldsStart = 0
    this.fieldCount = 0
    this.#position = 0
    this.#mark = 0
    this.#state = this.#kind === "request" ? EMPTY_LINES : this.#kind === "answer" ? VERSION : FIELD
  }

  nameStart(field: number): number {
    return this.#fields[field * FIELD_SIZE] as number
  }
  nameEnd(field: number): number {
    return this.#fields[field * FIELD_SIZE + 1] as number
  }
  valueStart(field: number): number {
    return this.#fields[field * FIELD_SIZE + 2] as number
  }
  valueEnd(field: number): number {
    return this.#fields[field * FIELD_SIZE + 3] as number
  }
  /** Which field it is: see `fields.ts`. */
  id(field: number): number {
    return this.#fields[field * FIELD_SIZE + 4] as number
  }
  setId(field: number, id: number): void {
    this.#fields[field * FIELD_SIZE + 4] = id
  }
  /** Where the field's line ends, its CR LF included. */
  lineEnd(field: number): number {
    return field + 1 < this.fieldCount ? this.nameStart(field + 1) : this.length - 2
  }

  /**
   * Goes on where the last call ended. `bytes` holds the head's first byte at `base`, and is valid up to `end`.
   * Gives `COMPLETE`, `INCOMPLETE`, or the status to refuse with.
   */
  read(bytes: Uint8Array, base: number, end: number): number {
    const available = end - base
    const limit = Math.min(available, this.#limit)
    if (this.#state < FIELD) {
      const result = this.#readStartLine(bytes, base, limit)
      if (result !== COMPLETE) return this.#outcome(result, available)
    }
    return this.#outcome(this.#readFields(bytes, base, limit), available)
  }

  #outcome(result: number, available: number): number {
    if (result !== INCOMPLETE || available < this.#limit) return result
    return this.#refuse(431, `the head is longer than ${this.#limit} bytes`)
  }

  #refuse(status: number, reason: string): number {
    this.reason = reason
    return status
  }

  #suspend(state: number, position: number): number {
    this.#state = state
    this.#position = position
    return INCOMPLETE
  }

  #readStartLine(bytes: Uint8Array, base: number, limit: number): number {
    let i = this.#position
    let state = this.#state
    while (i < limit) {
      const byte = bytes[base + i] as number
      switch (state) {
        case EMPTY_LINES:
          if (byte === CR) {
            state = EMPTY_LINES_LF
            i++
            break
          }
          if (TOKEN[byte] !== 1) return this.#refuse(400, "the request does not begin with a method")
          this.start = i
          state = METHOD
          break
        case EMPTY_LINES_LF:
          if (byte !== LF) return this.#refuse(400, "a line ends in CR alone")
          state = EMPTY_LINES
          i++
          break
        case METHOD:
          while (i < limit && TOKEN[bytes[base + i] as number] === 1) i++
          if (i === limit) break
          if (bytes[base + i] !== SP) return this.#refuse(400, "the method is not followed by one space")
          this.methodEnd = i++
          state = TARGET_START
          break
        case TARGET_START:
          if (TARGET[byte] !== 1) return this.#refuse(400, "the request line has no target")
          this.targetStart = i
          state = TARGET_REST
          break
        case TARGET_REST:
          while (i < limit && TARGET[bytes[base + i] as number] === 1) i++
          if (i === limit) break
          if (bytes[base + i] !== SP)
            return this.#refuse(400, "the target is not followed by one space and the version")
          this.targetEnd = i++
          this.#mark = i
          state = VERSION
          break
        case VERSION: {
          const result = this.#versionByte(byte, i - this.#mark)
          if (result !== COMPLETE) return result
          i++
          if (i - this.#mark === VERSION_BYTES) state = this.#kind === "request" ? VERSION_CR : STATUS_SPACE
          break
        }
        case VERSION_CR:
          if (byte !== CR) return this.#refuse(400, "the request line does not end after the version")
          i++
          state = START_LINE_LF
          break
        case STATUS_SPACE:
          if (byte !== SP) return this.#refuse(400, "the version is not followed by one space and a status")
          i++
          this.statusStart = i
          this.status = 0
          state = STATUS_CODE
          break
        case STATUS_CODE:
          if (byte < ZERO || byte > NINE) return this.#refuse(400, "the status is not three digits")
          this.status = this.status * 10 + byte - ZERO
          i++
          if (i - this.statusStart === 3) {
            if (this.status < 100) return this.#refuse(400, "the status is less than 100")
            state = STATUS_END
          }
          break
        case STATUS_END:
          if (byte !== SP && byte !== CR) return this.#refuse(400, "the status is not three digits")
          i++
          state = byte === SP ? REASON : START_LINE_LF
          break
        case REASON:
          while (i < limit && TEXT[bytes[base + i] as number] === 1) i++
          if (i === limit) break
          if (bytes[base + i] !== CR) return this.#refuse(400, "the reason holds a control character")
          i++
          state = START_LINE_LF
          break
        default:
          if (byte !== LF) return this.#refuse(400, "a line ends in CR alone")
          i++
          this.fieldsStart = i
          this.#state = FIELD
          this.#position = i
          return COMPLETE
      }
    }
    return this.#suspend(state, i)
  }

  #versionByte(byte: number, index: number): number {
    if (index < VERSION_PREFIX.length) {
      return byte === VERSION_PREFIX[index] ? COMPLETE : this.#refuse(400, "the version is not HTTP")
    }
    if (index === VERSION_PREFIX.length + 1) {
      return byte === DOT ? COMPLETE : this.#refuse(400, "the version is not HTTP/1.1 or HTTP/1.0")
    }
    if (byte < ZERO || byte > NINE) return this.#refuse(400, "the version is not HTTP/1.1 or HTTP/1.0")
    if (index === VERSION_PREFIX.length) {
      return byte === ONE ? COMPLETE : this.#refuse(505, "the version is not HTTP/1.1 or HTTP/1.0")
    }
    this.minorVersion = byte - ZERO
    return byte <= ONE ? COMPLETE : this.#refuse(505, "the version is not HTTP/1.1 or HTTP/1.0")
  }

  #readFields(bytes: Uint8Array, base: number, limit: number): number {
    let i = this.#position
    let state = this.#state
    let at = this.fieldCount * FIELD_SIZE
    const fields = this.#fields
    while (i < limit) {
      const byte = bytes[base + i] as number
      switch (state) {
        case FIELD:
          if (byte === CR) {
            i++
            state = FINAL_LF
            break
          }
          if (TOKEN[byte] !== 1) return this.#refuse(400, fieldStartProblem(byte))
          if (this.fieldCount === MAX_FIELDS)
            return this.#refuse(431, `there are more than ${MAX_FIELDS} fields`)
          fields[at] = i
          state = NAME
          break
        case NAME:
          while (i < limit && TOKEN[bytes[base + i] as number] === 1) i++
          if (i === limit) break
          if (bytes[base + i] !== COLON) {
            return this.#refuse(400, "a field's name is not followed by a colon at once")
          }
          fields[at + 1] = i++
          state = PADDING
          break
        case PADDING:
          if (byte === SP || byte === HT) {
            i++
            break
          }
          fields[at + 2] = i
          state = VALUE
          break
        case VALUE: {
          while (i < limit && TEXT[bytes[base + i] as number] === 1) i++
          if (i === limit) break
          if (bytes[base + i] !== CR) return this.#refuse(400, valueProblem(bytes[base + i] as number))
          const start = fields[at + 2] as number
          let valueEnd = i
          while (valueEnd > start && isPadding(bytes[base + valueEnd - 1] as number)) valueEnd--
          fields[at + 3] = valueEnd
          i++
          state = VALUE_LF
          break
        }
        case VALUE_LF:
          if (byte !== LF) return this.#refuse(400, "a line ends in CR alone")
          fields[at + 4] = fieldId(bytes, base + (fields[at] as number), base + (fields[at + 1] as number))
          this.fieldCount++
          at += FIELD_SIZE
          i++
          state = FIELD
          break
        case FINAL_LF:
          if (byte !== LF) return this.#refuse(400, "a line ends in CR alone")
          this.#state = FINISHED
          this.length = i + 1
          return COMPLETE
        default:
          throw new Error("the head was read to its end already")
      }
    }
    return this.#suspend(state, i)
  }
}

const isPadding = (byte: number) => byte === SP || byte === HT

const fieldStartProblem = (byte: number): string => {
  if (byte === SP || byte === HT) return "a field is continued on the next line"
  return byte === LF ? "a line ends in LF alone" : "a line is not a field"
}

const valueProblem = (byte: number): string =>
  byte === LF ? "a line ends in LF alone" : "a field's value holds a control character"
