/** The extended headers of a POSIX tar: `LENGTH KEY=VALUE\n`, one after the other. */
import { Refused } from "./sink.ts"
import type { Segment } from "./tar-header.ts"

/** Values are bytes: a name or an attribute may hold any. Several of one key are kept in their order. */
export type PaxRecords = ReadonlyArray<readonly [key: string, value: Buffer]>

const corrupt = () => new Refused("is corrupt: an extended header cannot be read")

export const readPax = (bytes: Buffer): PaxRecords => {
  const records: Array<readonly [string, Buffer]> = []
  let place = 0
  while (place < bytes.length && bytes[place] !== 0) {
    const space = bytes.indexOf(0x20, place)
    const digits = space < 0 ? "" : bytes.toString("latin1", place, space)
    if (!/^[1-9][0-9]{0,9}$/u.test(digits)) throw corrupt()
    const end = place + Number(digits)
    const equals = bytes.indexOf(0x3d, space)
    if (end > bytes.length || bytes[end - 1] !== 0x0a || equals < 0 || equals >= end) throw corrupt()
    // A copy: the piece that it lies in is given back.
    records.push([
      bytes.toString("latin1", space + 1, equals),
      Buffer.from(bytes.subarray(equals + 1, end - 1))
    ])
    place = end
  }
  return records
}

/** The last record of the key, as a string of bytes. An empty one takes back what a global header said. */
export const paxText = (records: PaxRecords, key: string): string | undefined => {
  const value = records.findLast(([name]) => name === key)?.[1].toString("latin1")
  return value === "" ? undefined : value
}

export const paxNumber = (records: PaxRecords, key: string): number | undefined => {
  const value = paxText(records, key)
  if (value === undefined) return undefined
  if (!/^-?[0-9]{1,16}(?:\.[0-9]*)?$/u.test(value)) throw corrupt()
  return Number(value)
}

/** bsdtar writes attributes in two forms; libarchive's own has the name in URL escapes and the value in base64. */
export const paxAttributes = (records: PaxRecords): ReadonlyMap<string, Buffer> | undefined => {
  let attributes: Map<string, Buffer> | undefined
  for (const [key, value] of records) {
    const name = /^(?:SCHILY|LIBARCHIVE)\.xattr\.(.+)$/su.exec(key)?.[1]
    if (name === undefined) continue
    attributes ??= new Map()
    if (key.startsWith("SCHILY.")) attributes.set(name, value)
    else attributes.set(unescaped(name), Buffer.from(value.toString("latin1"), "base64"))
  }
  return attributes
}

const unescaped = (name: string): string =>
  name.replaceAll(/%([0-9A-Fa-f]{2})/gu, (_, digits) => String.fromCharCode(Number.parseInt(digits, 16)))

export interface PaxSparse {
  readonly realSize: number
  /** `undefined` where it lies at the head of the content (version 1.0). */
  readonly map: ReadonlyArray<Segment> | undefined
}

/** A sparse file in GNU's versions 0.0, 0.1 and 1.0; `undefined` for one that is not sparse. */
export const paxSparse = (records: PaxRecords): PaxSparse | undefined => {
  const major = paxNumber(records, "GNU.sparse.major")
  const realSize = paxNumber(records, "GNU.sparse.realsize") ?? paxNumber(records, "GNU.sparse.size")
  if (major === undefined && realSize === undefined) return undefined
  if (realSize === undefined || realSize < 0 || !Number.isSafeInteger(realSize)) throw corrupt()
  if (major === 1) return { realSize, map: undefined }
  if (major !== undefined && major !== 0) throw new Refused("has a sparse file in a form that is not known")
  const list = paxText(records, "GNU.sparse.map")
  const numbers =
    list?.split(",") ??
    records
      .filter(([key]) => key === "GNU.sparse.offset" || key === "GNU.sparse.numbytes")
      .map(([, value]) => value.toString("latin1"))
  return { realSize, map: pairs(numbers) }
}

/** Offsets and lengths by turns, in decimal. */
export const pairs = (numbers: ReadonlyArray<string>): ReadonlyArray<Segment> => {
  if (numbers.length % 2 !== 0 || !numbers.every((digits) => /^[0-9]{1,15}$/u.test(digits))) throw corrupt()
  return Array.from({ length: numbers.length / 2 }, (_, index) => ({
    offset: Number(numbers[2 * index]),
    length: Number(numbers[2 * index + 1])
  }))
}
