/** The 512-byte header of a tar, in the forms of POSIX, GNU tar, star and V7. */
import { Refused } from "./sink.ts"

export const BLOCK = 512

export interface TarHeader {
  readonly name: string
  readonly linkName: string
  readonly mode: number
  /** Bytes of content in the archive. */
  readonly size: number
  readonly mtime: number
  /** One character; `0` for a regular file. */
  readonly type: string
  readonly deviceMajor: number
  readonly deviceMinor: number
}

const text = (block: Buffer, start: number, length: number): string => {
  const field = block.toString("latin1", start, start + length)
  const end = field.indexOf("\0")
  return end < 0 ? field : field.slice(0, end)
}

/** Octal digits, or GNU's big-endian binary where the first bit is set. */
const number = (block: Buffer, start: number, length: number, what: string): number => {
  if (((block[start] ?? 0) & 0x80) !== 0) {
    const binary = BigInt(`0x${block.toString("hex", start, start + length)}`)
    const bits = 8 * length - 1
    // The first bit only says that it is binary; the one behind it is the sign.
    const value = Number(BigInt.asIntN(bits, BigInt.asUintN(bits, binary)))
    if (!Number.isSafeInteger(value))
      throw new Refused(`is corrupt: a header has a ${what} that is no number`)
    return value
  }
  const digits = text(block, start, length).trim()
  if (digits === "") return 0
  if (!/^[0-7]+$/u.test(digits)) throw new Refused(`is corrupt: a header has a ${what} that is no number`)
  return Number.parseInt(digits, 8)
}

export const isZero = (block: Buffer): boolean => block.every((byte) => byte === 0)

/** Sums as bytes, or as signed bytes, as some old tars did. */
const hasChecksum = (block: Buffer): boolean => {
  const digits = text(block, 148, 8).trim()
  if (!/^[0-7]+$/u.test(digits)) return false
  let unsigned = 8 * 32
  let high = 0
  for (let index = 0; index < BLOCK; index += 1) {
    if (index >= 148 && index < 156) continue
    const byte = block[index] ?? 0
    unsigned += byte
    if (byte > 127) high += 1
  }
  const stated = Number.parseInt(digits, 8)
  return stated === unsigned || stated === unsigned - 256 * high
}

/** Whether a tar could begin with this block. */
export const looksLikeTar = (block: Buffer): boolean =>
  block.length >= BLOCK && (hasChecksum(block) || isZero(block.subarray(0, BLOCK)))

/** `undefined` for a block whose checksum is wrong. */
export const readHeader = (block: Buffer): TarHeader | undefined => {
  if (!hasChecksum(block)) return undefined
  const short = text(block, 0, 100)
  // GNU's magic has a space there, and other things where the prefix would be.
  const posix = block.toString("latin1", 257, 263) === "ustar\0"
  const star = posix && block.toString("latin1", 508, 512) === "tar\0"
  const prefix = posix ? text(block, 345, star ? 131 : 155) : ""
  const flag = block[156] ?? 0
  const type = flag === 0 || flag === 0x37 ? "0" : String.fromCharCode(flag)
  const isDevice = type === "3" || type === "4"
  const size = number(block, 124, 12, "size")
  if (size < 0) throw new Refused("is corrupt: a header has a negative size")
  return {
    name: prefix === "" ? short : `${prefix}/${short}`,
    linkName: text(block, 157, 100),
    mode: number(block, 100, 8, "mode") & 0o7777,
    size,
    mtime: number(block, 136, 12, "time"),
    type: type === "0" && short.endsWith("/") ? "5" : type,
    deviceMajor: isDevice ? number(block, 329, 8, "device number") : 0,
    deviceMinor: isDevice ? number(block, 337, 8, "device number") : 0
  }
}

/** A piece of a sparse file that has content. */
export interface Segment {
  readonly offset: number
  readonly length: number
}

/** Old GNU tars keep the map of a sparse file in the header, and in more blocks behind it. */
export const oldSparse = {
  realSize: (block: Buffer): number => number(block, 483, 12, "size"),
  inHeader: (block: Buffer): ReadonlyArray<Segment> => segments(block, 386, 4),
  goesOn: (block: Buffer): boolean => block[482] === 1,
  inExtension: (block: Buffer): ReadonlyArray<Segment> => segments(block, 0, 21),
  extensionGoesOn: (block: Buffer): boolean => block[504] === 1
}

const segments = (block: Buffer, start: number, count: number): ReadonlyArray<Segment> =>
  Array.from({ length: count }, (_, index) => start + 24 * index)
    .filter((place) => block[place] !== 0)
    .map((place) => ({
      offset: number(block, place, 12, "map"),
      length: number(block, place + 12, 12, "map")
    }))
