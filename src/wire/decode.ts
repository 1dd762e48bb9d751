/** The payload of one record to the record. Whatever the bytes are, the answer is a record or a `WireError`. */
import type { Result } from "effect"
import type { BootSpec, GuestEvent, GuestUsage } from "../services/Guest.ts"
import { FieldReader, wireResult } from "./bytes.ts"
import {
  FIRST_EVENT_TYPE,
  type GuestRecord,
  GuestType,
  type HostRecord,
  HostType,
  MAGIC,
  MAX_DATAGRAM_BYTES,
  MAX_REASON_BYTES,
  PHASES,
  PROBE_OUTCOMES,
  RECEIPT_OUTCOMES,
  SESSION_BYTES,
  type WireError
} from "./records.ts"
import { withResets } from "./stuffing.ts"

const event = (type: number, reader: FieldReader): GuestEvent | undefined => {
  switch (type) {
    case GuestType.output: {
      const stream = reader.u8()
      if (stream !== 1 && stream !== 2) throw reader.malformed("names a stream that does not exist")
      return { kind: "output", stream: stream === 1 ? "stdout" : "stderr", bytes: reader.rest() }
    }
    case GuestType.gap:
      return { kind: "gap", bytes: reader.u64() }
    case GuestType.started:
      return { kind: "started" }
    case GuestType.restarting: {
      const attemptNumber = reader.u32()
      const budget = reader.u32()
      const total = reader.u32()
      const exitKind = reader.oneOf(["code", "signal"] as const)
      const exit = reader.u32()
      return {
        kind: "restarting",
        attempt: attemptNumber,
        budget,
        total,
        exit: exitKind === "code" ? { code: exit } : { signal: exit },
        backoffMs: reader.u64(),
        reason: reader.sentence(MAX_REASON_BYTES)
      }
    }
    case GuestType.failed:
      return { kind: "failed", reason: reader.sentence(MAX_REASON_BYTES) }
    default:
      return undefined
  }
}

const usage = (reader: FieldReader): GuestUsage => {
  const said: GuestUsage = {
    volumeTotalBytes: reader.u64(),
    volumeUsedBytes: reader.u64(),
    memoryTotalBytes: reader.u64(),
    memoryUsedBytes: reader.u64(),
    cpuTotalTicks: reader.u64(),
    cpuBusyTicks: reader.u64(),
    receivedBytes: reader.u64(),
    sentBytes: reader.u64()
  }
  const possible =
    said.volumeUsedBytes <= said.volumeTotalBytes &&
    said.memoryUsedBytes <= said.memoryTotalBytes &&
    said.cpuBusyTicks <= said.cpuTotalTicks
  if (!possible) throw reader.malformed("says that more is used than there is")
  return said
}

const datagram = (reader: FieldReader, bytes: Uint8Array | undefined): Uint8Array => {
  if (bytes === undefined) throw reader.malformed("holds a run of 0xFF that nothing ends")
  if (bytes.length > MAX_DATAGRAM_BYTES) throw reader.malformed("holds a datagram that no network carries")
  return bytes
}

/** None for a record of a type that this host does not know and that needs no acknowledgement. */
export const decodeGuestPayload = (
  type: number,
  payload: Uint8Array
): Result.Result<GuestRecord | undefined, WireError> =>
  wireResult((): GuestRecord | undefined => {
    const reader = new FieldReader(payload, `0x${type.toString(16).padStart(2, "0")} of the guest`)
    if (type >= FIRST_EVENT_TYPE) {
      return { kind: "event", sequence: reader.u64(), event: event(type, reader) }
    }
    switch (type) {
      case GuestType.helloAck: {
        const magic = reader.raw(MAGIC.length)
        if (MAGIC.some((byte, index) => magic[index] !== byte)) throw reader.malformed("lacks the magic")
        return {
          kind: "hello-ack",
          session: reader.raw(SESSION_BYTES),
          version: reader.u32(),
          phase: reader.oneOf(PHASES),
          nextSequence: reader.u64()
        }
      }
      case GuestType.receipt:
        return { kind: "receipt", of: reader.u8(), outcome: reader.oneOf(RECEIPT_OUTCOMES) }
      case GuestType.probeResult:
        return { kind: "probe-result", id: reader.u32(), outcome: reader.oneOf(PROBE_OUTCOMES) }
      case GuestType.usageResult:
        return { kind: "usage-result", id: reader.u32(), usage: usage(reader) }
      case GuestType.reply:
        return { kind: "reply", flow: reader.u32(), bytes: datagram(reader, reader.rest()) }
      case GuestType.dropped:
        return { kind: "dropped", datagrams: reader.u64() }
      default:
        return undefined
    }
  })

const bootSpec = (reader: FieldReader): BootSpec => {
  const many = <A>(count: number, one: () => A): ReadonlyArray<A> => Array.from({ length: count }, one)
  const hostname = reader.string()
  const network = { address: reader.string(), prefixLength: reader.u8(), gateway: reader.string() }
  const nameservers = many(reader.u8(), () => reader.string())
  const layerCount = reader.u8()
  const program = reader.string()
  const workingDirectory = reader.string()
  const args = many(reader.u16(), () => reader.string())
  const environment = many(reader.u16(), () => [reader.string(), reader.string()] as const)
  const restartPolicy = {
    maxRestarts: reader.u32(),
    initialBackoffMs: reader.u64(),
    maxBackoffMs: reader.u64(),
    backoffFactor: reader.f64(),
    resetAfterMs: reader.u64()
  }
  return {
    hostname,
    network,
    nameservers,
    layerCount,
    program,
    args,
    workingDirectory,
    environment,
    restartPolicy,
    hostTime: reader.u64()
  }
}

/** As PID 1 reads it; for fakes and vectors. None for an unknown type. */
export const decodeHostPayload = (
  type: number,
  payload: Uint8Array
): Result.Result<HostRecord | undefined, WireError> =>
  wireResult((): HostRecord | undefined => {
    const reader = new FieldReader(payload, `0x${type.toString(16).padStart(2, "0")} of the host`)
    switch (type) {
      case HostType.hello:
        return { kind: "hello", version: reader.u32(), session: reader.raw(SESSION_BYTES) }
      case HostType.bootSpec:
        return { kind: "boot-spec", spec: bootSpec(reader) }
      case HostType.ack:
        return { kind: "ack", sequence: reader.u64() }
      case HostType.probe:
        return { kind: "probe", id: reader.u32(), port: reader.u16(), timeoutMs: reader.u32() }
      case HostType.shutdown:
        return { kind: "shutdown", graceMs: reader.u32() }
      case HostType.usage:
        return { kind: "usage", id: reader.u32() }
      case HostType.freeze:
        return { kind: "freeze", leaseMs: reader.u32() }
      case HostType.thaw:
        return { kind: "thaw", hostTime: reader.u64() }
      case HostType.datagram: {
        const flow = reader.u32()
        const port = reader.u16()
        if (reader.u8() !== 0) throw reader.malformed("holds a byte before its datagram that is not 0")
        return { kind: "datagram", flow, port, bytes: datagram(reader, withResets(reader.rest())) }
      }
      case HostType.closeFlow:
        return { kind: "close-flow", flow: reader.u32() }
      case HostType.freezeVolume:
        return { kind: "freeze-volume", leaseMs: reader.u32() }
      case HostType.thawVolume:
        return { kind: "thaw-volume" }
      default:
        return undefined
    }
  })
