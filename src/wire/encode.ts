/** Records to bytes, whole with their header. */
import { Result } from "effect"
import type { BootSpec } from "../services/Guest.ts"
import { FieldWriter, wireResult } from "./bytes.ts"
import {
  type GuestRecord,
  GuestType,
  HOST_RECORD_END,
  type HostRecord,
  HostType,
  MAGIC,
  MAX_DATAGRAM_BYTES,
  MAX_GUEST_PAYLOAD,
  MAX_HOST_PAYLOAD,
  PHASES,
  PROBE_OUTCOMES,
  RECEIPT_OUTCOMES,
  RESET_BYTES,
  SESSION_BYTES,
  USAGE_FIELDS,
  WireError
} from "./records.ts"
import { withoutResets } from "./stuffing.ts"

const frame = (type: number, payload: Uint8Array, max: number, end: ReadonlyArray<number>): Uint8Array => {
  if (payload.length > max) {
    throw new WireError({ reason: `a record has ${payload.length} bytes, and ${max} are the most` })
  }
  return new FieldWriter().u32("length", payload.length).u8("type", type).raw(payload).raw(end).finish()
}

const session = (bytes: Uint8Array): Uint8Array => {
  if (bytes.length === SESSION_BYTES && bytes.some((byte) => byte !== 0xff)) return bytes
  throw new WireError({ reason: `a session has ${SESSION_BYTES} bytes that are not all 0xFF` })
}

/**
 * `string hostname, string address, u8 prefixLength, string gateway, u8 n + n strings nameservers,
 * u8 layerCount, string program, string workingDirectory, u16 n + n strings args,
 * u16 n + n (string name, string value) environment, u32 maxRestarts, u64 initialBackoffMs, u64 maxBackoffMs,
 * f64 backoffFactor, u64 resetAfterMs, u64 hostTime`
 */
const bootSpec = (spec: BootSpec): Uint8Array => {
  const writer = new FieldWriter()
    .string("the hostname", spec.hostname)
    .string("the address", spec.network.address)
    .u8("the prefix length", spec.network.prefixLength)
    .string("the gateway", spec.network.gateway)
    .u8("the number of nameservers", spec.nameservers.length)
  for (const nameserver of spec.nameservers) writer.string("a nameserver", nameserver)
  writer
    .u8("the number of layers", spec.layerCount)
    .string("the program", spec.program)
    .string("the working directory", spec.workingDirectory)
    .u16("the number of arguments", spec.args.length)
  spec.args.forEach((arg, index) => {
    writer.string(`argument ${index + 1}`, arg)
  })
  writer.u16("the number of environment variables", spec.environment.length)
  for (const [name, value] of spec.environment) {
    writer.string("the name of an environment variable", name)
    writer.string(`the environment variable ${name}`, value)
  }
  const policy = spec.restartPolicy
  return writer
    .u32("maxRestarts", policy.maxRestarts)
    .u64("initialBackoffMs", policy.initialBackoffMs)
    .u64("maxBackoffMs", policy.maxBackoffMs)
    .f64("backoffFactor", policy.backoffFactor)
    .u64("resetAfterMs", policy.resetAfterMs)
    .u64("the host's time", spec.hostTime)
    .finish()
}

const datagram = (bytes: Uint8Array): Uint8Array => {
  if (bytes.length <= MAX_DATAGRAM_BYTES) return bytes
  throw new WireError({
    reason: `a datagram has ${bytes.length} bytes, and ${MAX_DATAGRAM_BYTES} are the most`
  })
}

const hostPayload = (record: HostRecord): readonly [type: number, payload: Uint8Array] => {
  const writer = new FieldWriter()
  switch (record.kind) {
    case "hello":
      return [HostType.hello, writer.u32("the version", record.version).raw(session(record.session)).finish()]
    case "boot-spec":
      return [HostType.bootSpec, bootSpec(record.spec)]
    case "ack":
      return [HostType.ack, writer.u64("the sequence", record.sequence).finish()]
    case "probe":
      return [
        HostType.probe,
        writer
          .u32("the id", record.id)
          .u16("the port", record.port)
          .u32("timeoutMs", record.timeoutMs)
          .finish()
      ]
    case "shutdown":
      return [HostType.shutdown, writer.u32("graceMs", record.graceMs).finish()]
    case "usage":
      return [HostType.usage, writer.u32("the id", record.id).finish()]
    case "freeze":
      return [HostType.freeze, writer.u32("leaseMs", record.leaseMs).finish()]
    case "thaw":
      return [HostType.thaw, writer.u64("the host's time", record.hostTime).finish()]
    case "datagram":
      return [
        HostType.datagram,
        writer
          .u32("the flow", record.flow)
          .u16("the port", record.port)
          .u8("the byte before the datagram", 0)
          .raw(withoutResets(datagram(record.bytes)))
          .finish()
      ]
    case "close-flow":
      return [HostType.closeFlow, writer.u32("the flow", record.flow).finish()]
    case "freeze-volume":
      return [HostType.freezeVolume, writer.u32("leaseMs", record.leaseMs).finish()]
    case "thaw-volume":
      return [HostType.thawVolume, writer.finish()]
  }
}

/** Fails when a value does not fit its field or the record is too large, naming the field and never a variable's value. */
export const encodeHostRecord = (record: HostRecord): Result.Result<Uint8Array, WireError> =>
  wireResult(() => frame(...hostPayload(record), MAX_HOST_PAYLOAD, [HOST_RECORD_END]))

/** The reset and the HELLO behind it: what a host writes first on every connection. */
export const encodeReset = (version: number, sessionId: Uint8Array): Result.Result<Uint8Array, WireError> =>
  Result.map(encodeHostRecord({ kind: "hello", version, session: sessionId }), (hello) => {
    const bytes = new Uint8Array(RESET_BYTES + hello.length).fill(0xff, 0, RESET_BYTES)
    bytes.set(hello, RESET_BYTES)
    return bytes
  })

/** The first bytes of the one HELLO_ACK that answers this session. */
export const helloAckPattern = (sessionId: Uint8Array): Uint8Array =>
  new FieldWriter()
    .u32("length", MAGIC.length + SESSION_BYTES + 13)
    .u8("type", GuestType.helloAck)
    .raw(MAGIC)
    .raw(sessionId)
    .finish()

const guestPayload = (record: GuestRecord): readonly [type: number, payload: Uint8Array] => {
  const writer = new FieldWriter()
  switch (record.kind) {
    case "hello-ack":
      return [
        GuestType.helloAck,
        writer
          .raw(MAGIC)
          .raw(session(record.session))
          .u32("the version", record.version)
          .u8("the phase", PHASES.indexOf(record.phase))
          .u64("the sequence", record.nextSequence)
          .finish()
      ]
    case "receipt":
      return [
        GuestType.receipt,
        writer.u8("the type", record.of).u8("the outcome", RECEIPT_OUTCOMES.indexOf(record.outcome)).finish()
      ]
    case "probe-result":
      return [
        GuestType.probeResult,
        writer.u32("the id", record.id).u8("the outcome", PROBE_OUTCOMES.indexOf(record.outcome)).finish()
      ]
    case "usage-result":
      writer.u32("the id", record.id)
      for (const field of USAGE_FIELDS) writer.u64(field, record.usage[field])
      return [GuestType.usageResult, writer.finish()]
    case "reply":
      return [GuestType.reply, writer.u32("the flow", record.flow).raw(datagram(record.bytes)).finish()]
    case "dropped":
      return [GuestType.dropped, writer.u64("the number of datagrams", record.datagrams).finish()]
    case "event":
      break
  }
  const event = record.event
  writer.u64("the sequence", record.sequence)
  if (event === undefined) throw new WireError({ reason: "an event of an unknown type cannot be written" })
  switch (event.kind) {
    case "output":
      return [
        GuestType.output,
        writer
          .u8("the stream", event.stream === "stdout" ? 1 : 2)
          .raw(event.bytes)
          .finish()
      ]
    case "gap":
      return [GuestType.gap, writer.u64("the bytes lost", event.bytes).finish()]
    case "started":
      return [GuestType.started, writer.finish()]
    case "failed":
      return [GuestType.failed, writer.string("the reason", event.reason).finish()]
    case "restarting": {
      const [exitKind, exit] = "code" in event.exit ? [0, event.exit.code] : [1, event.exit.signal]
      writer.u32("the attempt", event.attempt).u32("the budget", event.budget).u32("the total", event.total)
      writer.u8("the kind of exit", exitKind).u32("the exit", exit).u64("the backoff", event.backoffMs)
      return [GuestType.restarting, writer.string("the reason", event.reason).finish()]
    }
  }
}

/** As PID 1 writes it; for fakes and vectors. */
export const encodeGuestRecord = (record: GuestRecord): Result.Result<Uint8Array, WireError> =>
  wireResult(() => frame(...guestPayload(record), MAX_GUEST_PAYLOAD, []))
