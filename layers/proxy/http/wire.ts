/**
 * One TCP connection as the proxy uses it, on either leg. Outside Effect: this is the data path.
 *
 * Reading: all connections read into one buffer of the process, because each read is dealt with before the next one
 * starts. What must outlive the call to `received` is copied. A connection that fills this buffer gets a larger one
 * of its own, which is passed on without a copy, and used again once the kernel has taken what was written of it.
 * Writing: what one read brings is gathered and written at once; small pieces as text of one byte per character,
 * which Node hands to the kernel without a copy of its own.
 */
import type { Socket } from "node:net"
import { NEVER, type Perishable, type Sweep } from "./sweep.ts"

/** The largest piece that is gathered as text; a larger one is written as bytes. */
const MAX_TEXT_PIECE = 4_096
/** The most text that is gathered for one write: what Node tries to write without allocating. */
const MAX_TEXT = 16_384
const READ_BYTES = 65_536
/** What a connection reads into while it brings more than that at once. */
const BULK_BYTES = 262_144
/** A read of less than this ends the reading in bulk. */
const BULK_END_BYTES = 16_384

const readBuffer = Buffer.allocUnsafeSlow(READ_BYTES)

/** Views of the buffer being dealt with that may outlive the call to `received`. */
let lent = 0

/** Hands a socket what it reads into, and whom it tells: the options of `net.Socket` of this name. */
export interface OnRead {
  readonly buffer: () => Uint8Array
  readonly callback: (length: number, bytes: Uint8Array) => boolean
}

/** Where defects of the proxy itself are told. Whatever a stranger sends must not end the daemon. */
export type OnDefect = (error: unknown) => void

export abstract class Wire implements Perishable {
  readonly socket: Socket
  deadline = NEVER
  /** The peer has closed its sending side. */
  peerEnded = false
  closed = false
  /** What broke the connection, such as `ECONNRESET`; empty when nothing did. */
  errorCode = ""
  protected readonly sweep: Sweep
  readonly #onDefect: OnDefect
  #text = ""
  #corked = false
  #paused = false
  /** The last reads brought so much that a buffer of its own pays. */
  #bulk = false
  #buffer: Buffer | undefined
  /** How many of the `lent` views were written to this connection since the last flush. */
  #lent = 0

  constructor(sweep: Sweep, onDefect: OnDefect, open: (onread: OnRead) => Socket) {
    this.sweep = sweep
    this.#onDefect = onDefect
    this.socket = open({
      // Node takes nothing for an answer, its types do not
      buffer: () => this.#nextBuffer() as Uint8Array,
      callback: (length, bytes) => {
        if (this.closed) return false
        lent = 0
        this.#bulk = length === bytes.length || (this.#bulk && length >= BULK_END_BYTES)
        try {
          this.received(bytes as Buffer, 0, length)
        } catch (error) {
          this.#fail(error)
        }
        // a resumption that Node had put off may have started the reading again after a later pause
        return !this.#paused
      }
    })
    this.socket.on("end", () => {
      if (this.closed) return
      this.peerEnded = true
      this.#guarded(() => this.ended())
    })
    this.socket.on("drain", () => {
      if (!this.closed) this.#guarded(() => this.drained())
    })
    this.socket.on("error", (error: NodeJS.ErrnoException) => {
      this.errorCode = error.code ?? error.name
    })
    this.socket.on("close", () => {
      this.closed = true
      sweep.remove(this)
      this.#guarded(() => this.gone())
    })
    sweep.add(this)
  }

  /** Bytes came. They are valid during the call only. */
  protected abstract received(bytes: Buffer, start: number, end: number): void
  /** The peer has closed its sending side; what it sent before has been received. */
  protected abstract ended(): void
  /** What was written has gone out, after `flush` had given false. */
  protected abstract drained(): void
  /** The connection is closed, by either side or an error. Called once. */
  protected abstract gone(): void
  abstract expired(): void

  /** Adds text, one byte per character, to what the next `flush` writes. */
  put(text: string): void {
    if (this.#text.length + text.length > MAX_TEXT) this.#spill()
    this.#text += text
  }

  /** Adds bytes to what the next `flush` writes. */
  putBytes(bytes: Buffer, start: number, end: number): void {
    if (end - start <= MAX_TEXT_PIECE) {
      this.put(bytes.toString("latin1", start, end))
      return
    }
    this.#spill()
    if (this.closed) return
    const before = lent
    const piece = keepable(bytes, start, end)
    this.#lent += lent - before
    this.socket.write(piece)
  }

  /** Writes what was put. False: the peer does not keep up; `drained` tells when it has. */
  flush(): boolean {
    const text = this.#text
    if (text !== "") {
      this.#text = ""
      if (!this.closed) this.socket.write(text, "latin1")
    }
    if (this.#corked) {
      this.#corked = false
      this.socket.uncork()
    }
    if (this.#lent > 0) {
      // what the kernel has taken is not looked at again
      if (this.socket.writableLength === 0) lent -= this.#lent
      this.#lent = 0
    }
    return !this.socket.writableNeedDrain
  }

  pause(): void {
    if (this.#paused) return
    this.#paused = true
    this.socket.pause()
  }

  resume(): void {
    if (!this.#paused) return
    this.#paused = false
    this.socket.resume()
  }

  get isPaused(): boolean {
    return this.#paused
  }

  /** Closes the sending side after everything that was put. */
  endWriting(): void {
    this.flush()
    if (!this.closed) this.socket.end()
  }

  /** Closes at once; nothing is received from now on. */
  destroy(): void {
    this.closed = true
    this.socket.destroy()
  }

  /** Closes at once and lets the peer know that something is missing. */
  reset(): void {
    if (this.closed) return
    this.closed = true
    // TLS tells by the missing close_notify, and its sockets cannot be reset
    if (this.socket.connecting || "encrypted" in this.socket) this.socket.destroy()
    else this.socket.resetAndDestroy()
  }

  /** What the next read goes into. Node asks after each one, and keeps what it has when it is given nothing. */
  #nextBuffer(): Buffer | undefined {
    const present = this.#buffer
    if (!this.#bulk) this.#buffer = readBuffer
    else if (present === readBuffer || lent > 0) this.#buffer = Buffer.allocUnsafeSlow(BULK_BYTES)
    return this.#buffer === present ? undefined : this.#buffer
  }

  /** Writes text and bytes that were put so far, and holds them together with what follows until `flush`. */
  #spill(): void {
    if (!this.#corked) {
      this.#corked = true
      this.socket.cork()
    }
    if (this.#text === "") return
    if (!this.closed) this.socket.write(this.#text, "latin1")
    this.#text = ""
  }

  #guarded(step: () => void): void {
    try {
      step()
    } catch (error) {
      this.#fail(error)
    }
  }

  #fail(error: unknown): void {
    this.#onDefect(error)
    this.destroy()
  }
}

/** Bytes that stay as they are when the next read comes. */
export const keepable = (bytes: Buffer, start: number, end: number): Buffer => {
  const piece = bytes.subarray(start, end)
  if (bytes.buffer === readBuffer.buffer) return Buffer.from(piece)
  lent++
  return piece
}
