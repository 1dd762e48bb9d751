/**
 * Finds the content of a message's body among the bytes of a connection, without keeping any of it. Outside
 * Effect: this is the data path.
 */
import { allowedInTrailer } from "./fields.ts"
import { CR, HEX, LF, TEXT } from "./grammar.ts"
import { COMPLETE, HeadReader, INCOMPLETE } from "./head.ts"
import { MAX_CHUNK_EXTENSION_BYTES, MAX_CHUNK_LINE_BYTES } from "./limits.ts"

/** How a body is delimited (RFC 9112 section 6). */
export type Framing = "none" | "length" | "chunked" | "until-close"

/** What `BodyReader.read` gives for bytes that are no chunked body. */
export const MALFORMED = -1

const SIZE_START = 0
const SIZE = 1
const EXTENSION = 2
const SIZE_LF = 3
const DATA = 4
const DATA_CR = 5
const DATA_LF = 6
const TRAILER = 7

const SEMICOLON = 0x3b
/** 12 hexadecimal digits stay within the integers that a number holds exactly. */
const MAX_SIZE_DIGITS = 12
const NO_BYTES = Buffer.alloc(0)

export class BodyReader {
  framing: Framing = "none"
  done = true
  /** The piece of content that the last `read` found; empty when it found none. */
  contentStart = 0
  contentEnd = 0
  /** The trailer fields that may be passed on, as lines; known once a chunked body is done. */
  trailers = ""

  /** What is left of the body (length) or of the chunk (chunked). */
  #left = 0
  #state = SIZE_START
  #lineBytes = 0
  #digits = 0
  #extensionBytes = 0
  #trailerReader: HeadReader | undefined
  #trailerBytes: Buffer = NO_BYTES

  /** Begins a body. `length` counts with framing `length` only. */
  begin(framing: Framing, length: number): void {
    this.framing = framing
    this.done = framing === "none" || (framing === "length" && length === 0)
    this.trailers = ""
    this.#left = framing === "length" ? length : 0
    this.#state = SIZE_START
    this.#lineBytes = 0
    this.#digits = 0
    this.#extensionBytes = 0
  }

  /** Whether the end of the connection is the proper end of the body. */
  get endsWithConnection(): boolean {
    return this.done || this.framing === "until-close"
  }

  /**
   * Reads on at `at` until a piece of content is found, the body is done or the bytes end; gives where it stopped,
   * or `MALFORMED`. To be called again while bytes are left and the body is not done.
   */
  read(bytes: Buffer, at: number, end: number): number {
    this.contentStart = at
    this.contentEnd = at
    if (this.done) return at
    if (this.framing === "chunked") return this.#readChunked(bytes, at, end)
    const taken = this.framing === "length" && this.#left < end - at ? this.#left : end - at
    if (this.framing === "length") {
      this.#left -= taken
      this.done = this.#left === 0
    }
    this.contentEnd = at + taken
    return at + taken
  }

  #readChunked(bytes: Buffer, from: number, end: number): number {
    let i = from
    while (i < end) {
      const byte = bytes[i] as number
      switch (this.#state) {
        case SIZE_START:
        case SIZE: {
          const digit = HEX[byte] as number
          if (digit !== 255) {
            if (++this.#digits > MAX_SIZE_DIGITS) return MALFORMED
            this.#left = this.#left * 16 + digit
            this.#state = SIZE
          } else if (this.#state === SIZE_START) return MALFORMED
          else if (byte === CR) this.#state = SIZE_LF
          else if (byte === SEMICOLON) this.#state = EXTENSION
          else return MALFORMED
          this.#lineBytes++
          i++
          break
        }
        case EXTENSION:
          if (byte === CR) this.#state = SIZE_LF
          else if (TEXT[byte] !== 1) return MALFORMED
          if (++this.#lineBytes > MAX_CHUNK_LINE_BYTES) return MALFORMED
          if (++this.#extensionBytes > MAX_CHUNK_EXTENSION_BYTES) return MALFORMED
          i++
          break
        case SIZE_LF:
          if (byte !== LF) return MALFORMED
          this.#state = this.#left === 0 ? TRAILER : DATA
          this.#lineBytes = 0
          this.#digits = 0
          i++
          break
        case DATA: {
          const taken = Math.min(this.#left, end - i)
          this.#left -= taken
          if (this.#left === 0) this.#state = DATA_CR
          this.contentStart = i
          this.contentEnd = i + taken
          return i + taken
        }
        case DATA_CR:
          if (byte !== CR) return MALFORMED
          this.#state = DATA_LF
          i++
          break
        case DATA_LF:
          if (byte !== LF) return MALFORMED
          this.#state = SIZE_START
          i++
          break
        default:
          return this.#readTrailer(bytes, i, end)
      }
    }
    return i
  }

  #readTrailer(bytes: Buffer, at: number, end: number): number {
    this.#trailerReader ??= new HeadReader("trailer")
    const reader = this.#trailerReader
    const kept = this.#trailerBytes.length
    const piece = bytes.subarray(at, end)
    const section = kept === 0 ? piece : Buffer.concat([this.#trailerBytes, piece])
    const result = reader.read(section, 0, section.length)
    if (result === INCOMPLETE) {
      this.#trailerBytes = kept === 0 ? Buffer.from(piece) : section
      return end
    }
    if (result !== COMPLETE) return MALFORMED
    this.trailers = trailerLines(reader, section)
    this.done = true
    this.#trailerReader = undefined
    this.#trailerBytes = NO_BYTES
    return at + reader.length - kept
  }
}

/** The fields of a complete trailer section that may be passed on, as lines. */
export const trailerLines = (reader: HeadReader, section: Buffer): string => {
  let lines = ""
  for (let field = 0; field < reader.fieldCount; field++) {
    const name = section.toString("latin1", reader.nameStart(field), reader.nameEnd(field)).toLowerCase()
    if (allowedInTrailer(name, reader.id(field))) {
      lines += section.toString("latin1", reader.nameStart(field), reader.lineEnd(field))
    }
  }
  return lines
}
