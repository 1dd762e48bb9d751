/** Output in pieces becomes lines, and lines become records that a program cannot forge. */

/** The longest line, in bytes; a longer one is cut into several records. */
export const MAX_LINE_BYTES = 65536

/** Starts a line of the host's own. */
export const HOST_MARK = "[nibrun] "

const NEWLINE = 0x0a

/** How many of the bytes before `end` belong to a UTF-8 character that `end` would split. 0 to 3. */
const splitCharacterBytes = (bytes: Uint8Array, end: number): number => {
  for (let back = 1; back <= 3 && back <= end; back += 1) {
    const byte = bytes[end - back] ?? 0
    if ((byte & 0b1100_0000) === 0b1000_0000) continue
    const length = byte >= 0xf0 && byte < 0xf5 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1
    return byte < 0xf5 && length > back ? back : 0
  }
  return 0
}

/** One for all: most of the time there is no half line of most apps. */
const NOTHING = Buffer.alloc(0)

/** A copy that holds on to nothing else; what it is cut from may be large. */
const kept = (rest: Uint8Array): Buffer => (rest.length === 0 ? NOTHING : Buffer.from(rest))

/** Cuts one stream of output into lines. Keeps what is unfinished: at most `MAX_LINE_BYTES`. */
export class LineCutter {
  #rest: Buffer = NOTHING
  /** The unfinished line was handed out already, so a newline that comes next only ends it. */
  #handedOut = false

  /** Whether an unfinished line is kept. */
  get unfinished(): boolean {
    return this.#rest.length > 0
  }

  /** The lines that these bytes finish, in order, without their newlines. */
  push(piece: Uint8Array): ReadonlyArray<string> {
    if (piece.length === 0) return []
    const bytes = this.#rest.length === 0 ? Buffer.from(piece) : Buffer.concat([this.#rest, piece])
    const lines: Array<string> = []
    let start = 0
    if (this.#handedOut) {
      if (this.#rest.length === 0 && bytes[0] === NEWLINE) start = 1
      this.#handedOut = false
    }
    for (;;) {
      const newline = bytes.indexOf(NEWLINE, start)
      const end = newline === -1 ? bytes.length : newline
      if (end - start > MAX_LINE_BYTES) {
        const cut = start + MAX_LINE_BYTES
        const whole = cut - splitCharacterBytes(bytes, cut)
        lines.push(bytes.toString("utf8", start, whole))
        start = whole
        continue
      }
      if (newline === -1) break
      lines.push(bytes.toString("utf8", start, newline))
      start = newline + 1
    }
    // A copy, so that a short rest does not hold the whole piece in memory.
    this.#rest = kept(bytes.subarray(start))
    return lines
  }

  /** The unfinished line, except the bytes of a character that is not whole yet; undefined when there is nothing. */
  takeUnfinished(): string | undefined {
    const whole = this.#rest.length - splitCharacterBytes(this.#rest, this.#rest.length)
    if (whole === 0) return undefined
    return this.#take(whole)
  }

  /** All that is left, for the end of the stream. */
  takeAll(): string | undefined {
    return this.#rest.length === 0 ? undefined : this.#take(this.#rest.length)
  }

  #take(length: number): string {
    const text = this.#rest.toString("utf8", 0, length)
    this.#rest = kept(this.#rest.subarray(length))
    this.#handedOut = true
    return text
  }
}

// C0 but tab, DEL, C1, and the separators of Unicode that some readers take for the end of a line.
const unprintable = /[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]/gu

const escaped = (character: string): string => {
  const code = character.codePointAt(0) ?? 0
  return code > 0xff ? `\\u${code.toString(16)}` : `\\x${code.toString(16).padStart(2, "0")}`
}

/**
 * The text of a record: on one line, whatever a terminal or a reader makes of it. Control characters other
 * than tab are shown as `\xNN`, so that no escape sequence reaches the terminal of who reads the log.
 */
export const visibleText = (text: string): string => text.replace(unprintable, escaped)

/** The text of a program's line. A carriage return before the newline is dropped; the host's mark is broken. */
export const programText = (line: string): string => {
  const text = visibleText(line.endsWith("\r") ? line.slice(0, -1) : line)
  return text.startsWith(HOST_MARK) ? `${escaped("[")}${text.slice(1)}` : text
}
