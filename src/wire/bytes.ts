/** Big-endian fields: a writer that grows, and a reader that never leaves its bytes. */
import { Result } from "effect"
import { WireError } from "./records.ts"

const encoder = new TextEncoder()
const decoder = new TextDecoder()
const strictDecoder = new TextDecoder("utf-8", { fatal: true })

/** Throws `WireError`: `encode.ts` and `decode.ts` turn it into a Result. */
export class FieldWriter {
  private bytes = new Uint8Array(256)
  private view = new DataView(this.bytes.buffer)
  private at = 0

  private room(count: number): number {
    const start = this.at
    this.at += count
    if (this.at > this.bytes.length) {
      const larger = new Uint8Array(Math.max(this.at, this.bytes.length * 2))
      larger.set(this.bytes)
      this.bytes = larger
      this.view = new DataView(larger.buffer)
    }
    return start
  }

  private checked(name: string, value: number, max: number): number {
    if (Number.isInteger(value) && value >= 0 && value <= max) return value
    throw new WireError({ reason: `${name} must be a whole number from 0 to ${max}, not ${value}` })
  }

  u8(name: string, value: number) {
    const at = this.room(1)
    this.view.setUint8(at, this.checked(name, value, 0xff))
    return this
  }
  u16(name: string, value: number) {
    const at = this.room(2)
    this.view.setUint16(at, this.checked(name, value, 0xffff))
    return this
  }
  u32(name: string, value: number) {
    const at = this.room(4)
    this.view.setUint32(at, this.checked(name, value, 0xffffffff))
    return this
  }
  /** At most 2^53 - 1. */
  u64(name: string, value: number) {
    const at = this.room(8)
    this.view.setBigUint64(at, BigInt(this.checked(name, value, Number.MAX_SAFE_INTEGER)))
    return this
  }
  f64(name: string, value: number) {
    if (!Number.isFinite(value)) throw new WireError({ reason: `${name} must be a finite number` })
    const at = this.room(8)
    this.view.setFloat64(at, value)
    return this
  }
  raw(bytes: Uint8Array | ReadonlyArray<number>) {
    const at = this.room(bytes.length)
    this.bytes.set(bytes, at)
    return this
  }
  string(name: string, value: string) {
    if (value.includes("\0")) throw new WireError({ reason: `${name} must not hold a NUL character` })
    const bytes = encoder.encode(value)
    return this.u32(name, bytes.length).raw(bytes)
  }
  finish(): Uint8Array {
    return this.bytes.slice(0, this.at)
  }
}

/** The same bytes without what Node's Buffer changes: its `slice` is a view that keeps all of the buffer alive. */
export const plainBytes = (bytes: Uint8Array): Uint8Array =>
  new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength)

/** Throws `WireError` where a field does not fit what is left of the payload. */
export class FieldReader {
  private at = 0
  private readonly bytes: Uint8Array
  private readonly view: DataView
  private readonly record: string

  constructor(bytes: Uint8Array, record: string) {
    this.bytes = plainBytes(bytes)
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    this.record = record
  }

  private take(count: number): number {
    if (count > this.bytes.length - this.at) throw this.malformed("is cut short")
    const start = this.at
    this.at += count
    return start
  }

  malformed(what: string): WireError {
    return new WireError({ reason: `a record ${this.record} ${what}` })
  }

  u8(): number {
    return this.view.getUint8(this.take(1))
  }
  u16(): number {
    return this.view.getUint16(this.take(2))
  }
  u32(): number {
    return this.view.getUint32(this.take(4))
  }
  u64(): number {
    const value = this.view.getBigUint64(this.take(8))
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw this.malformed("holds a number above 2^53 - 1")
    return Number(value)
  }
  f64(): number {
    const value = this.view.getFloat64(this.take(8))
    if (!Number.isFinite(value)) throw this.malformed("holds a number that is not finite")
    return value
  }
  raw(count: number): Uint8Array {
    const start = this.take(count)
    return this.bytes.slice(start, start + count)
  }
  rest(): Uint8Array {
    return this.raw(this.bytes.length - this.at)
  }
  oneOf<A>(values: ReadonlyArray<A>): A {
    const value = values[this.u8()]
    if (value === undefined) throw this.malformed("holds a choice that does not exist")
    return value
  }
  /** Strict: what the host wrote is UTF-8. */
  string(): string {
    const bytes = this.raw(this.u32())
    if (bytes.includes(0)) throw this.malformed("holds a NUL character")
    const text = Result.try(() => strictDecoder.decode(bytes))
    if (Result.isFailure(text)) throw this.malformed("holds text that is not UTF-8")
    return text.success
  }
  /** A sentence by the guest, made harmless: invalid UTF-8 and control characters become U+FFFD. */
  sentence(maxBytes: number): string {
    const length = this.u32()
    if (length > maxBytes) throw this.malformed(`holds a text of ${length} bytes (${maxBytes} allowed)`)
    return decoder.decode(this.raw(length)).replace(/\p{Cc}/gu, "\ufffd")
  }
}

/** Runs what throws `WireError`; anything else that is thrown is a defect and stays one. */
export const wireResult = <A>(run: () => A): Result.Result<A, WireError> =>
  Result.try({
    try: run,
    catch: (error) => {
      if (error instanceof WireError) return error
      throw error
    }
  })
