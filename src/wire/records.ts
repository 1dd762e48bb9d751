/**
 * The records that the host and a guest's PID 1 exchange, and the rules of the channel that carries them.
 *
 * The channel is a byte stream (a virtio-serial port). It survives a restart of the daemon and a migration,
 * but what a dead daemon had not read is lost without an error, and half a record is glued to the next. So:
 *
 * **Record**: `u32 length | u8 type | payload`. `length` is that of the payload. Every number is big-endian;
 * a `string` is `u32 length | UTF-8` without NUL. A payload is at most `MAX_HOST_PAYLOAD` bytes towards the
 * guest and `MAX_GUEST_PAYLOAD` towards the host. Bytes behind the known fields of a payload are ignored and
 * records of an unknown type are skipped by both ends, so that either may be newer.
 *
 * Towards the guest one byte `HOST_RECORD_END` follows the payload, which `length` does not count.
 *
 * **Reset**: sixteen or more bytes 0xFF, then a HELLO. No record towards the guest holds sixteen 0xFF in a row
 * (text is UTF-8; a u64 is at most 2^53 - 1, so it starts with 0x00), and none ends in 0xFF, so that the first
 * bytes of a reset never complete a record that was cut short. PID 1 counts them at every point of the stream:
 * it forgets its half-read record and what it had begun to write. Before the first reset, and after a length or
 * an end that cannot be, it ignores everything but a reset.
 *
 * **Session**: HELLO carries 16 random bytes. The host ignores every byte from the guest until it has found the
 * HELLO_ACK with these very bytes: nothing written for an earlier connection can hold them.
 *
 * **Events**: types from 0xC0 are numbered. Their payload starts with `u64 sequence`, which only grows. PID 1
 * keeps them in a ring of `RING_BYTES` until the host has acknowledged them, sends at most `WINDOW_BYTES`
 * that are not acknowledged yet, and sends them again after each HELLO: a host that reconnects drops what it
 * has seen (`sequence` not above its last). When the ring is full the oldest output that was not sent makes
 * room, and a GAP with the number of bytes takes its place (and the last sequence that it replaces). PID 1
 * never waits for the host. Other records of the guest are answers; they are not repeated.
 *
 * | type | record | payload |
 * | --- | --- | --- |
 * | 0x01 | HELLO | u32 version, 16 bytes session |
 * | 0x02 | BOOT_SPEC | see `encode.ts`; answered by RECEIPT |
 * | 0x03 | ACK | u64 sequence: this event and all before it have been dealt with |
 * | 0x04 | PROBE | u32 id, u16 port, u32 timeout in ms; answered by PROBE_RESULT |
 * | 0x05 | SHUTDOWN | u32 grace in ms; answered by RECEIPT |
 * | 0x06 | USAGE | u32 id; answered by USAGE_RESULT |
 * | 0x07 | FREEZE | u32 lease in ms; answered by RECEIPT when the program is frozen and its volume synced, or will not be |
 * | 0x08 | THAW | u64 the host's time in ms since 1970; answered by RECEIPT |
 * | 0x09 | DATAGRAM | u32 flow, u16 port, u8 0, bytes to the end; after 15 bytes 0xFF in a row a byte 0x00 stands that is none of the datagram's |
 * | 0x0A | CLOSE_FLOW | u32 flow |
 * | 0x0B | FREEZE_VOLUME | u32 lease in ms; answered by RECEIPT when the volume's filesystem is frozen, or will not be |
 * | 0x0C | THAW_VOLUME | nothing; answered by RECEIPT once it is thawed: taken when the freeze had held until then, not now when there was none (any more) |
 * | 0x81 | HELLO_ACK | `MAGIC`, 16 bytes session, u32 version, u8 phase, u64 sequence of the next event sent |
 * | 0x82 | RECEIPT | u8 type of the record, u8 outcome: 0 taken, 1 not now, 2 not understood |
 * | 0x83 | PROBE_RESULT | u32 id, u8 outcome: 0 accepted, 1 refused, 2 timed out, 3 failed |
 * | 0x84 | USAGE_RESULT | u32 id, u64 each: volume total and used bytes, memory total and used bytes, CPU total and busy ticks, network bytes received and sent; see `GuestUsage` |
 * | 0x85 | REPLY | u32 flow, bytes to the end: a datagram for this flow's client |
 * | 0x86 | DROPPED | u64 datagrams, of both ways, that found no room in the guest since it said so last |
 * | 0xC1 | OUTPUT | u64 sequence, u8 stream (1 stdout, 2 stderr), bytes to the end |
 * | 0xC2 | GAP | u64 sequence, u64 bytes |
 * | 0xC3 | STARTED | u64 sequence |
 * | 0xC4 | RESTARTING | u64 sequence, u32 attempt, u32 budget, u32 total since the boot, u8 exit kind (0 code, 1 signal), u32 exit, u64 backoff in ms, string reason |
 * | 0xC5 | FAILED | u64 sequence, string reason |
 *
 * **Flow**: one client's datagrams to one UDP port. The host numbers them from 1 within a connection. PID 1 opens a
 * socket at the first datagram of a flow and closes it with CLOSE_FLOW, a reset, or after a minute of silence; the next
 * datagram opens it again. Datagrams are not repeated, and both ends drop those that find no room.
 *
 * **Version**: each end tells its own in the hello. Both read the records of every version; the host does not ask an
 * older guest (`DATAGRAMS_SINCE`, `VOLUME_FREEZE_SINCE`) what it would skip.
 *
 * Types 0x0D to 0x3F and 0x87 to 0xBF are for later requests and answers. `guest/wire/wire.h` is the other end;
 * `test/vectors/wire.json` holds both to the same bytes.
 */
import { Schema } from "effect"
import type { BootSpec, GuestEvent, GuestPhase, GuestUsage, PortProbe } from "../services/Guest.ts"

export const PROTOCOL_VERSION = 2
/** The first version of a guest that carries datagrams. */
export const DATAGRAMS_SINCE = 2
/** The first version of a guest that freezes its volume. */
export const VOLUME_FREEZE_SINCE = 2

/** Bytes of a record before its payload. */
export const HEADER_BYTES = 5
/** The byte behind a payload towards the guest. */
export const HOST_RECORD_END = 0x0a
/** The most bytes of a payload towards the guest: a boot spec with arguments and environment. */
export const MAX_HOST_PAYLOAD = 2 * 1024 * 1024
/** The most bytes of a payload towards the host. */
export const MAX_GUEST_PAYLOAD = 64 * 1024
/** The most bytes of a datagram: what IPv4 leaves of 65,535 behind its header and UDP's. */
export const MAX_DATAGRAM_BYTES = 65_507
/** What PID 1 keeps of events until they are acknowledged. */
export const RING_BYTES = 256 * 1024
/** What PID 1 sends of events ahead of their acknowledgement. */
export const WINDOW_BYTES = 64 * 1024
/** The most bytes of a sentence from the guest. */
export const MAX_REASON_BYTES = 1024

export const SESSION_BYTES = 16
/** The shortest run of 0xFF that resets PID 1's reading. */
export const RESET_BYTES = 16
/** `NBRN`: the first bytes of a HELLO_ACK. */
export const MAGIC: ReadonlyArray<number> = [0x4e, 0x42, 0x52, 0x4e]

export const HostType = {
  hello: 0x01,
  bootSpec: 0x02,
  ack: 0x03,
  probe: 0x04,
  shutdown: 0x05,
  usage: 0x06,
  freeze: 0x07,
  thaw: 0x08,
  datagram: 0x09,
  closeFlow: 0x0a,
  freezeVolume: 0x0b,
  thawVolume: 0x0c
} as const
export const GuestType = {
  helloAck: 0x81,
  receipt: 0x82,
  probeResult: 0x83,
  usageResult: 0x84,
  reply: 0x85,
  dropped: 0x86,
  output: 0xc1,
  gap: 0xc2,
  started: 0xc3,
  restarting: 0xc4,
  failed: 0xc5
} as const
/** The first type of the numbered records. */
export const FIRST_EVENT_TYPE = 0xc0

/** In the order of their numbers on the wire. */
export const PHASES: ReadonlyArray<GuestPhase> = [
  "awaiting-spec",
  "starting",
  "running",
  "backing-off",
  "stopping",
  "failed",
  "frozen"
]
export const PROBE_OUTCOMES: ReadonlyArray<PortProbe> = ["accepted", "refused", "timed-out", "failed"]
export const RECEIPT_OUTCOMES = ["taken", "not-now", "not-understood"] as const
export type ReceiptOutcome = (typeof RECEIPT_OUTCOMES)[number]

/** In their order on the wire: each whole is followed by its part, but for the last two. */
export const USAGE_FIELDS = [
  "volumeTotalBytes",
  "volumeUsedBytes",
  "memoryTotalBytes",
  "memoryUsedBytes",
  "cpuTotalTicks",
  "cpuBusyTicks",
  "receivedBytes",
  "sentBytes"
] as const satisfies ReadonlyArray<keyof GuestUsage>

/** What the host says. */
export type HostRecord =
  | { readonly kind: "hello"; readonly version: number; readonly session: Uint8Array }
  | { readonly kind: "boot-spec"; readonly spec: BootSpec }
  | { readonly kind: "ack"; readonly sequence: number }
  | { readonly kind: "probe"; readonly id: number; readonly port: number; readonly timeoutMs: number }
  | { readonly kind: "shutdown"; readonly graceMs: number }
  | { readonly kind: "freeze"; readonly leaseMs: number }
  | { readonly kind: "thaw"; readonly hostTime: number }
  | { readonly kind: "usage"; readonly id: number }
  | { readonly kind: "datagram"; readonly flow: number; readonly port: number; readonly bytes: Uint8Array }
  | { readonly kind: "close-flow"; readonly flow: number }
  | { readonly kind: "freeze-volume"; readonly leaseMs: number }
  | { readonly kind: "thaw-volume" }

/** What the guest says. An event of an unknown type has no `event`, but is acknowledged like the others. */
export type GuestRecord =
  | {
      readonly kind: "hello-ack"
      readonly session: Uint8Array
      readonly version: number
      readonly phase: GuestPhase
      readonly nextSequence: number
    }
  | { readonly kind: "receipt"; readonly of: number; readonly outcome: ReceiptOutcome }
  | { readonly kind: "probe-result"; readonly id: number; readonly outcome: PortProbe }
  | { readonly kind: "usage-result"; readonly id: number; readonly usage: GuestUsage }
  | { readonly kind: "reply"; readonly flow: number; readonly bytes: Uint8Array }
  | { readonly kind: "dropped"; readonly datagrams: number }
  | { readonly kind: "event"; readonly sequence: number; readonly event: GuestEvent | undefined }

/** Bytes that are no record, or a record that the wire cannot carry. `reason` holds no value of a boot spec. */
export class WireError extends Schema.TaggedError<WireError>()("WireError", { reason: Schema.String }) {
  override get message() {
    return this.reason
  }
}
