import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import type { BootSpec } from "../../../src/services/Guest.ts"
import { decodeGuestPayload, decodeHostPayload } from "../../../src/wire/decode.ts"
import { encodeGuestRecord, encodeHostRecord, encodeReset } from "../../../src/wire/encode.ts"
import {
  type GuestRecord,
  HEADER_BYTES,
  type HostRecord,
  MAX_DATAGRAM_BYTES,
  MAX_GUEST_PAYLOAD,
  MAX_HOST_PAYLOAD,
  PROTOCOL_VERSION,
  RESET_BYTES
} from "../../../src/wire/records.ts"
import { makeGuestRecordDecoder, makeHostRecordDecoder } from "../../../src/wire/stream.ts"
import {
  bytesOf,
  guestVectors,
  hexOf,
  hostVectors,
  malformedGuest,
  malformedHost,
  session
} from "./vectors.ts"

const concat = (...parts: ReadonlyArray<Uint8Array>) => new Uint8Array(Buffer.concat(parts))
const typeOf = (bytes: Uint8Array) => bytes[4] ?? 0
const lengthOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset).getUint32(0)
const payloadOf = (bytes: Uint8Array) => bytes.subarray(HEADER_BYTES, HEADER_BYTES + lengthOf(bytes))
const guestBytes = (record: GuestRecord) => Result.getOrThrow(encodeGuestRecord(record))
const hostBytes = (record: HostRecord) => Result.getOrThrow(encodeHostRecord(record))

const helloAck: GuestRecord = {
  kind: "hello-ack",
  session,
  version: PROTOCOL_VERSION,
  phase: "running",
  nextSequence: 3
}

const number = (max: number) => fc.oneof(fc.constant(max), fc.integer({ min: 0, max }))
const text = fc.string({ unit: "grapheme", maxLength: 60 }).filter((value) => !value.includes("\0"))
const specs: fc.Arbitrary<BootSpec> = fc.record({
  hostname: text,
  network: fc.record({ address: fc.ipV4(), prefixLength: number(255), gateway: fc.ipV4() }),
  nameservers: fc.array(fc.ipV4(), { maxLength: 3 }),
  layerCount: number(255),
  program: text,
  args: fc.array(text, { maxLength: 5 }),
  workingDirectory: text,
  environment: fc.array(fc.tuple(text, text), { maxLength: 5 }),
  restartPolicy: fc.record({
    maxRestarts: number(0xffffffff),
    initialBackoffMs: number(Number.MAX_SAFE_INTEGER),
    maxBackoffMs: number(Number.MAX_SAFE_INTEGER),
    backoffFactor: fc.double({ noNaN: true, noDefaultInfinity: true }),
    resetAfterMs: number(Number.MAX_SAFE_INTEGER)
  }),
  hostTime: number(Number.MAX_SAFE_INTEGER)
})
/** Often full of what a reset is made of. */
const datagrams = fc.oneof(
  fc.uint8Array({ maxLength: 60 }),
  fc
    .array(fc.tuple(fc.constantFrom(0, 0x0a, 0xff), fc.integer({ min: 1, max: 40 })), { maxLength: 6 })
    .map((runs) => Uint8Array.from(runs.flatMap(([byte, length]) => Array<number>(length).fill(byte))))
)
const hostRecords: fc.Arbitrary<HostRecord> = fc.oneof(
  fc.record({
    kind: fc.constant("hello" as const),
    version: number(0xffffffff),
    session: fc
      .uint8Array({ minLength: 16, maxLength: 16 })
      .filter((bytes) => bytes.some((byte) => byte !== 0xff))
  }),
  fc.record({ kind: fc.constant("boot-spec" as const), spec: specs }),
  fc.record({ kind: fc.constant("ack" as const), sequence: number(Number.MAX_SAFE_INTEGER) }),
  fc.record({
    kind: fc.constant("probe" as const),
    id: number(0xffffffff),
    port: number(0xffff),
    timeoutMs: number(0xffffffff)
  }),
  fc.record({ kind: fc.constant("shutdown" as const), graceMs: number(0xffffffff) }),
  fc.record({ kind: fc.constant("usage" as const), id: number(0xffffffff) }),
  fc.record({
    kind: fc.constant("datagram" as const),
    flow: number(0xffffffff),
    port: number(0xffff),
    bytes: datagrams
  }),
  fc.record({ kind: fc.constant("close-flow" as const), flow: number(0xffffffff) }),
  fc.record({ kind: fc.constant("freeze-volume" as const), leaseMs: number(0xffffffff) }),
  fc.record({ kind: fc.constant("thaw-volume" as const) })
)
/** What follows a hello on a connection: PID 1 takes nothing before one. */
const conversation = fc.array(hostRecords, { maxLength: 6 })

/** Cuts bytes into pieces at the given places. */
const pieces = (bytes: Uint8Array, cuts: ReadonlyArray<number>) => {
  const places = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b)
  return [...places, bytes.length].map((end, index) => bytes.subarray(places[index - 1] ?? 0, end))
}

describe("records", () => {
  for (const { name, record, hex } of hostVectors) {
    it(`${name}, towards the guest, is written and read as the vector says`, () => {
      assert.strictEqual(hexOf(hostBytes(record)), hex)
      const bytes = bytesOf(hex)
      assert.deepStrictEqual(decodeHostPayload(typeOf(bytes), payloadOf(bytes)), Result.succeed(record))
    })
  }

  for (const { name, record, hex } of guestVectors) {
    it(`${name}, towards the host, is written and read as the vector says`, () => {
      assert.strictEqual(hexOf(guestBytes(record)), hex)
      const bytes = bytesOf(hex)
      assert.deepStrictEqual(decodeGuestPayload(typeOf(bytes), payloadOf(bytes)), Result.succeed(record))
    })
  }

  for (const { name, hex } of malformedHost) {
    it(`${name} is no record`, () => {
      assert.isTrue(Result.isFailure(decodeHostPayload(typeOf(bytesOf(hex)), payloadOf(bytesOf(hex)))))
    })
  }

  for (const { name, hex } of malformedGuest) {
    it(`${name} is no record`, () => {
      assert.isTrue(Result.isFailure(decodeGuestPayload(typeOf(bytesOf(hex)), payloadOf(bytesOf(hex)))))
    })
  }

  it("every record towards the guest is read as it was written", () => {
    fc.assert(
      fc.property(hostRecords, (record) => {
        const bytes = hostBytes(record)
        assert.deepStrictEqual(decodeHostPayload(typeOf(bytes), payloadOf(bytes)), Result.succeed(record))
      })
    )
  })

  it("no sequence of records towards the guest holds a reset", () => {
    fc.assert(
      fc.property(conversation, (records) => {
        const bytes = Buffer.concat(records.map(hostBytes))
        assert.strictEqual(bytes.indexOf(Buffer.alloc(RESET_BYTES, 0xff)), -1)
      })
    )
  })

  it("what a guest says that it uses is refused unless every number is whole and no part larger than its whole", () => {
    const payload = (numbers: ReadonlyArray<bigint>) => {
      const view = new DataView(new ArrayBuffer(4 + 8 * numbers.length))
      numbers.forEach((value, index) => {
        view.setBigUint64(4 + 8 * index, value)
      })
      return new Uint8Array(view.buffer)
    }
    const u64 = fc.oneof(fc.bigInt({ min: 0n, max: 3n }), fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }))
    fc.assert(
      fc.property(fc.array(u64, { minLength: 8, maxLength: 8 }), (numbers) => {
        const possible =
          numbers.every((value) => value < 2n ** 53n) &&
          [0, 2, 4].every((whole) => (numbers[whole + 1] ?? 0n) <= (numbers[whole] ?? 0n))
        const read = decodeGuestPayload(0x84, payload(numbers))
        assert.strictEqual(Result.isSuccess(read), possible)
        if (Result.isFailure(read) || read.success?.kind !== "usage-result") return
        assert.deepStrictEqual(Object.values(read.success.usage), numbers.map(Number))
      }),
      { numRuns: 500 }
    )
  })

  it("any payload is a record, unknown, or malformed: nothing is thrown", () => {
    fc.assert(
      fc.property(fc.nat(255), fc.uint8Array({ maxLength: 80 }), (type, payload) => {
        decodeGuestPayload(type, payload)
        decodeHostPayload(type, payload)
      }),
      { numRuns: 2000 }
    )
  })

  it("an event of a type that this host does not know is still numbered", () => {
    assert.deepStrictEqual(
      decodeGuestPayload(0xee, bytesOf("0000000000000009aabb")),
      Result.succeed({ kind: "event", sequence: 9, event: undefined })
    )
  })

  it("an answer to hello of an older guest tells its version", () => {
    const record = { ...helloAck, version: 1 }
    const bytes = guestBytes(record)
    assert.deepStrictEqual(decodeGuestPayload(typeOf(bytes), payloadOf(bytes)), Result.succeed(record))
  })

  it("the largest datagram fits both ways, whatever is in it, and no larger one does", () => {
    for (const byte of [0, 0xff]) {
      const bytes = new Uint8Array(MAX_DATAGRAM_BYTES).fill(byte)
      const there = hostBytes({ kind: "datagram", flow: 1, port: 53, bytes })
      assert.deepStrictEqual(
        decodeHostPayload(typeOf(there), payloadOf(there)),
        Result.succeed({ kind: "datagram", flow: 1, port: 53, bytes })
      )
      const back = guestBytes({ kind: "reply", flow: 1, bytes })
      assert.deepStrictEqual(
        decodeGuestPayload(typeOf(back), payloadOf(back)),
        Result.succeed({ kind: "reply", flow: 1, bytes })
      )
    }
    const tooLarge = new Uint8Array(MAX_DATAGRAM_BYTES + 1)
    assert.isTrue(
      Result.isFailure(encodeHostRecord({ kind: "datagram", flow: 1, port: 53, bytes: tooLarge }))
    )
    assert.isTrue(Result.isFailure(encodeGuestRecord({ kind: "reply", flow: 1, bytes: tooLarge })))
    assert.isTrue(Result.isFailure(decodeGuestPayload(0x85, concat(new Uint8Array(4), tooLarge))))
  })

  it("an answer of an unknown type is skipped", () => {
    assert.deepStrictEqual(decodeGuestPayload(0x90, bytesOf("ff")), Result.succeed(undefined))
  })

  it("bytes that a newer guest adds to a record are ignored", () => {
    assert.deepStrictEqual(
      decodeGuestPayload(0x82, bytesOf("0200ffff")),
      Result.succeed({ kind: "receipt", of: 2, outcome: "taken" })
    )
  })

  it("a sentence of the guest cannot carry control characters or broken text into a report", () => {
    const bytes = bytesOf("0000000000000001" + "00000005" + "611b5bff0a")
    assert.deepStrictEqual(
      decodeGuestPayload(0xc5, bytes),
      Result.succeed({
        kind: "event",
        sequence: 1,
        event: { kind: "failed", reason: "a\ufffd[\ufffd\ufffd" }
      })
    )
  })

  const base = hostVectors.flatMap(({ record }) => (record.kind === "boot-spec" ? [record.spec] : []))[0]
  const reasonFor = (change: Partial<BootSpec>) => {
    assert.isDefined(base)
    const result = encodeHostRecord({ kind: "boot-spec", spec: { ...base, ...change } as BootSpec })
    return Result.isFailure(result) ? result.failure.message : "no failure"
  }

  it("a value that the wire cannot carry is refused by the name of its field, without the value", () => {
    assert.strictEqual(
      reasonFor({ environment: [["TOKEN", "top\0secret"]] }),
      "the environment variable TOKEN must not hold a NUL character"
    )
    assert.strictEqual(reasonFor({ args: ["fine", "\0"] }), "argument 2 must not hold a NUL character")
    assert.include(reasonFor({ hostTime: -1 }), "the host's time must be a whole number")
  })

  it("a boot spec that is larger than a record may be is refused with both sizes", () => {
    const value = "x".repeat(MAX_HOST_PAYLOAD)
    assert.match(
      reasonFor({ environment: [["BIG", value]] }),
      /^a record has 2097\d+ bytes, and 2097152 are the most$/
    )
  })

  it("a session of nothing but 0xFF is refused: it would be a reset", () => {
    assert.isTrue(Result.isFailure(encodeReset(PROTOCOL_VERSION, new Uint8Array(16).fill(0xff))))
  })
})

describe("the host's end of the stream", () => {
  const records: ReadonlyArray<GuestRecord> = [helloAck, ...guestVectors.map(({ record }) => record)]
  const stream = concat(...records.map(guestBytes))

  it("gives the same records however the stream is cut", () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ maxLength: 100 }),
        fc.array(fc.nat(2000), { maxLength: 20 }),
        (stale, cuts) => {
          const decoder = makeGuestRecordDecoder(session)
          const got = pieces(concat(stale, stream), cuts).flatMap((piece) =>
            Result.getOrThrow(decoder.push(piece))
          )
          assert.deepStrictEqual(got, records)
        }
      )
    )
  })

  it("ignores half a record and the answers to earlier sessions before its own", () => {
    const earlier = guestBytes({ ...helloAck, session: new Uint8Array(16).fill(7) })
    const half = guestBytes({ kind: "event", sequence: 1, event: { kind: "gap", bytes: 1 } }).subarray(0, 9)
    const decoder = makeGuestRecordDecoder(session)
    assert.deepStrictEqual(
      decoder.push(concat(half, earlier, half, half, guestBytes(helloAck))),
      Result.succeed([helloAck])
    )
  })

  it("keeps no piece alive that it was given: what it holds and gives is its own", () => {
    const decoder = makeGuestRecordDecoder(session)
    const output = guestBytes({
      kind: "event",
      sequence: 1,
      event: { kind: "output", stream: "stdout", bytes: Uint8Array.of(1, 2, 3) }
    })
    const piece = Buffer.from(concat(guestBytes(helloAck), output, output.subarray(0, 15)))
    const records = Result.getOrThrow(decoder.push(piece))
    piece.fill(0)
    const [last] = Result.getOrThrow(decoder.push(output.subarray(15)))
    for (const record of [records[1], last]) {
      assert.deepStrictEqual(record, {
        kind: "event",
        sequence: 1,
        event: { kind: "output", stream: "stdout", bytes: Uint8Array.of(1, 2, 3) }
      })
    }
  })

  it("refuses a record that is longer than allowed before it is there, and everything after it", () => {
    const decoder = makeGuestRecordDecoder(session)
    Result.getOrThrow(decoder.push(guestBytes(helloAck)))
    const tooLong = new Uint8Array(5)
    new DataView(tooLong.buffer).setUint32(0, MAX_GUEST_PAYLOAD + 1)
    const refused = decoder.push(tooLong)
    assert.isTrue(Result.isFailure(refused) && refused.failure.message.includes("65537 bytes"))
    assert.isTrue(Result.isFailure(decoder.push(guestBytes(helloAck))))
  })

  it("takes any bytes without a throw", () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 10 }), (rubbish) => {
        const decoder = makeGuestRecordDecoder(session)
        decoder.push(guestBytes(helloAck))
        for (const piece of rubbish) decoder.push(piece)
      })
    )
  })
})

describe("PID 1's end of the stream, as fakes play it", () => {
  it("takes up a conversation at every point where the one before it was cut", () => {
    fc.assert(
      fc.property(conversation, conversation, fc.nat(), (before, after, cut) => {
        const earlier = concat(
          Result.getOrThrow(encodeReset(PROTOCOL_VERSION, new Uint8Array(16).fill(9))),
          ...before.map(hostBytes)
        )
        const decoder = makeHostRecordDecoder()
        decoder.push(earlier.subarray(0, cut % (earlier.length + 1)))
        const hello: HostRecord = { kind: "hello", version: PROTOCOL_VERSION, session }
        const reset = Result.getOrThrow(encodeReset(PROTOCOL_VERSION, session))
        assert.deepStrictEqual(decoder.push(concat(reset, ...after.map(hostBytes))), [hello, ...after])
      })
    )
  })

  it("takes nothing before a reset and a hello", () => {
    const decoder = makeHostRecordDecoder()
    assert.deepStrictEqual(decoder.push(hostBytes({ kind: "shutdown", graceMs: 1 })), [])
    assert.deepStrictEqual(decoder.push(new Uint8Array(16).fill(0xff)), [])
    assert.deepStrictEqual(decoder.push(hostBytes({ kind: "shutdown", graceMs: 1 })), [])
  })

  it("waits for the next reset after a length that cannot be", () => {
    const decoder = makeHostRecordDecoder()
    const reset = Result.getOrThrow(encodeReset(PROTOCOL_VERSION, session))
    decoder.push(reset)
    decoder.push(bytesOf("0020000103"))
    assert.deepStrictEqual(decoder.push(hostBytes({ kind: "ack", sequence: 1 })), [])
    assert.strictEqual(decoder.push(reset).length, 1)
  })
})
