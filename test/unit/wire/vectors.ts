/** `test/vectors/wire.json`, with the bytes that JSON writes in hex as bytes. */
import type { GuestRecord, HostRecord } from "../../../src/wire/records.ts"
import json from "../../vectors/wire.json" with { type: "json" }

export const bytesOf = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, "hex"))
export const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex")

export const session = bytesOf("000102030405060708090a0b0c0d0e0f")

const inflated = (record: unknown): unknown => {
  if (typeof record !== "object" || record === null) return record
  return Object.fromEntries(
    Object.entries(record).map(([key, value]) => [
      key,
      key === "session" || (key === "bytes" && typeof value === "string")
        ? bytesOf(String(value))
        : Array.isArray(value)
          ? value
          : inflated(value)
    ])
  )
}

export interface Vector<R> {
  readonly name: string
  readonly record: R
  readonly hex: string
}

export const hostVectors = json.host.map((vector) => ({
  ...vector,
  record: inflated(vector.record)
})) as ReadonlyArray<Vector<HostRecord>>
export const guestVectors = json.guest.map((vector) => ({
  ...vector,
  record: inflated(vector.record)
})) as ReadonlyArray<Vector<GuestRecord>>
export const malformedHost = json.malformedHost
export const malformedGuest = json.malformedGuest
