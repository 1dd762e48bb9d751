/**
 * Records out of a stream of bytes, as they arrive. Memory is bounded: a decoder holds less than one record
 * beside the piece that it was given.
 */
import { Result } from "effect"
import { plainBytes } from "./bytes.ts"
import { decodeGuestPayload, decodeHostPayload } from "./decode.ts"
import { helloAckPattern } from "./encode.ts"
import {
  type GuestRecord,
  HEADER_BYTES,
  HOST_RECORD_END,
  type HostRecord,
  MAX_GUEST_PAYLOAD,
  MAX_HOST_PAYLOAD,
  RESET_BYTES,
  WireError
} from "./records.ts"

/** The host's end. After a failure the decoder is spent: the connection is closed and begun anew. */
export interface GuestRecordDecoder {
  /** The records that this piece completes; the first one ever is the HELLO_ACK of the session. */
  readonly push: (piece: Uint8Array) => Result.Result<ReadonlyArray<GuestRecord>, WireError>
}

const EMPTY = new Uint8Array(0)

const join = (left: Uint8Array, right: Uint8Array): Uint8Array => {
  if (left.length === 0) return right
  const both = new Uint8Array(left.length + right.length)
  both.set(left)
  both.set(right, left.length)
  return both
}

/** Where `pattern` starts in `bytes`; -1 when it is not there whole. */
const find = (bytes: Uint8Array, pattern: Uint8Array): number => {
  const last = bytes.length - pattern.length
  const first = pattern[0] ?? 0
  for (
    let start = bytes.indexOf(first);
    start !== -1 && start <= last;
    start = bytes.indexOf(first, start + 1)
  ) {
    let length = 1
    while (length < pattern.length && bytes[start + length] === pattern[length]) length++
    if (length === pattern.length) return start
  }
  return -1
}

const header = (bytes: Uint8Array, at: number) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset + at)
  return { length: view.getUint32(0), type: view.getUint8(4) }
}

/** For one connection with this session: everything before its HELLO_ACK is ignored. */
export const makeGuestRecordDecoder = (session: Uint8Array): GuestRecordDecoder => {
  const pattern = helloAckPattern(session)
  let pending: Uint8Array = EMPTY
  let greeted = false
  let failure: WireError | undefined

  const fail = (error: WireError): Result.Result<never, WireError> => {
    failure = error
    pending = EMPTY
    return Result.fail(error)
  }

  return {
    push: (piece) => {
      if (failure !== undefined) return Result.fail(failure)
      let bytes = join(pending, plainBytes(piece))
      if (!greeted) {
        const start = find(bytes, pattern)
        if (start === -1) {
          pending = bytes.slice(Math.max(0, bytes.length - pattern.length + 1))
          return Result.succeed([])
        }
        greeted = true
        bytes = bytes.subarray(start)
      }
      const records: Array<GuestRecord> = []
      let at = 0
      while (bytes.length - at >= HEADER_BYTES) {
        const { length, type } = header(bytes, at)
        if (length > MAX_GUEST_PAYLOAD) {
          return fail(new WireError({ reason: `the guest announces a record of ${length} bytes` }))
        }
        const end = at + HEADER_BYTES + length
        if (end > bytes.length) break
        const record = decodeGuestPayload(type, bytes.subarray(at + HEADER_BYTES, end))
        if (Result.isFailure(record)) return fail(record.failure)
        if (record.success !== undefined) records.push(record.success)
        at = end
      }
      pending = at === bytes.length ? EMPTY : bytes.slice(at)
      return Result.succeed(records)
    }
  }
}

/**
 * PID 1's end, for fakes: what `guest/wire/wire.c` does. Never fails: a payload that it cannot read is
 * skipped, and a length or an end that cannot be makes it wait for the next reset.
 */
export interface HostRecordDecoder {
  readonly push: (piece: Uint8Array) => ReadonlyArray<HostRecord>
}

export const makeHostRecordDecoder = (): HostRecordDecoder => {
  let pending: Array<number> = []
  let ones = 0
  let state: "lost" | "reset" | "greeted" = "lost"

  const complete = (): HostRecord | undefined => {
    if (pending.length < HEADER_BYTES) return undefined
    const { length, type } = header(Uint8Array.from(pending.slice(0, HEADER_BYTES)), 0)
    if (length > MAX_HOST_PAYLOAD) state = "lost"
    if (pending.length <= HEADER_BYTES + length) return undefined
    if (pending.pop() !== HOST_RECORD_END) {
      state = "lost"
      return undefined
    }
    const record = Result.getOrUndefined(
      decodeHostPayload(type, Uint8Array.from(pending.slice(HEADER_BYTES)))
    )
    pending = []
    if (record?.kind === "hello") state = "greeted"
    return state === "greeted" ? record : undefined
  }

  return {
    push: (piece) => {
      const records: Array<HostRecord> = []
      for (const byte of piece) {
        ones = byte === 0xff ? ones + 1 : 0
        if (ones >= RESET_BYTES) {
          state = "reset"
          pending = []
        } else if (state !== "lost") {
          pending.push(byte)
          const record = complete()
          if (record !== undefined) records.push(record)
        }
      }
      return records
    }
  }
}
