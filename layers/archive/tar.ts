/** Reads a tar as it comes. */
import { showName } from "../../src/volume/entry-path.ts"
import type { Parser, Want } from "./feed.ts"
import { type PaxRecords, pairs, paxAttributes, paxNumber, paxSparse, paxText, readPax } from "./pax.ts"
import { type Entry, Refused, type Sink } from "./sink.ts"
import { BLOCK, isZero, oldSparse, readHeader, type Segment, type TarHeader } from "./tar-header.ts"

/** Bytes. An extended header holds a name, and attributes of 64 KiB each. */
const LARGEST_EXTENSION = 2 ** 20
/** A sparse file in more pieces than this is no file that anyone keeps. */
const MOST_SEGMENTS = 2 ** 17

const NONE: PaxRecords = []

/** What headers before an entry say of it. */
interface Pending {
  records: PaxRecords
  longName: string | undefined
  longLink: string | undefined
}

export function* readTar(sink: Sink): Parser {
  let pending: Pending = { records: NONE, longName: undefined, longLink: undefined }
  let global: PaxRecords = NONE
  for (let first = true; ; first = false) {
    const block = yield { exact: BLOCK }
    if (isZero(block)) return
    const header = readHeader(block)
    if (header === undefined) {
      throw new Refused(first ? "holds no tar" : "is corrupt: the checksum of a header is wrong")
    }
    switch (header.type) {
      case "x":
      case "X":
        pending.records = readPax(yield* extension(header))
        continue
      case "g":
        global = readPax(yield* extension(header))
        continue
      case "L":
        pending.longName = untilNul(yield* extension(header))
        continue
      case "K":
        pending.longLink = untilNul(yield* extension(header))
        continue
      // A label of the volume.
      case "V":
        yield* pass(header.size)
        continue
    }
    yield* entry(sink, block, header, { ...pending, records: [...global, ...pending.records] })
    pending = { records: NONE, longName: undefined, longLink: undefined }
  }
}

const untilNul = (bytes: Buffer): string => bytes.toString("latin1").split("\0", 1)[0] ?? ""

const padded = (size: number): number => Math.ceil(size / BLOCK) * BLOCK

function* extension({ size }: TarHeader): Generator<Want, Buffer, Buffer> {
  if (size > LARGEST_EXTENSION) {
    throw new Refused(`has a header of ${size} bytes; at most ${LARGEST_EXTENSION} are read`)
  }
  if (size === 0) return Buffer.alloc(0)
  return (yield { exact: padded(size) }).subarray(0, size)
}

/** Passes over content and what fills its last block. */
function* pass(size: number): Parser {
  let left = padded(size)
  while (left > 0) left -= (yield { some: left }).length
}

function* entry(sink: Sink, block: Buffer, header: TarHeader, pending: Pending): Parser {
  const { records } = pending
  const attributes = paxAttributes(records)
  const described: Entry = {
    name: paxText(records, "GNU.sparse.name") ?? paxText(records, "path") ?? pending.longName ?? header.name,
    mode: header.mode,
    mtime: paxNumber(records, "mtime") ?? header.mtime,
    ...(attributes === undefined ? {} : { attributes })
  }
  const size = paxNumber(records, "size") ?? header.size
  if (!Number.isSafeInteger(size) || size < 0) {
    throw new Refused(`is corrupt: entry ${showName(described.name)} has a size that is no number of bytes`)
  }
  const linkName = paxText(records, "linkpath") ?? pending.longLink ?? header.linkName
  switch (header.type) {
    case "0":
    case "S": {
      if (header.type === "S") return yield* oldSparseFile(sink, described, block, size)
      const sparse = paxSparse(records)
      return sparse === undefined
        ? yield* file(sink, described, size)
        : yield* paxSparseFile(sink, described, size, sparse)
    }
    // The size is that of the file that it links to: no content follows.
    case "1":
      return sink.hardLink(described, linkName)
    case "2":
      sink.symbolicLink(described, linkName)
      break
    case "3":
      sink.characterDevice(described, header.deviceMajor, header.deviceMinor)
      break
    case "4":
      sink.other(described, "a block device")
      break
    // `D` is a directory of an incremental backup, with a list of its files as content.
    case "5":
    case "D":
      sink.directory(described)
      break
    case "6":
      sink.other(described, "a FIFO")
      break
    case "M":
      sink.other(described, "the rest of a file that begins in another archive")
      break
    default:
      sink.other(described, `of a kind that is not known (${JSON.stringify(header.type)})`)
  }
  yield* pass(size)
}

function* file(sink: Sink, described: Entry, size: number): Parser {
  const open = sink.file(described, size, size)
  if (open === undefined) return yield* pass(size)
  try {
    for (let position = 0; position < size; ) {
      const piece = yield { some: size - position }
      open.write(piece, position)
      position += piece.length
    }
  } finally {
    open.close()
  }
  const filling = padded(size) - size
  if (filling > 0) yield { exact: filling }
}

/** `stored` bytes of content follow, piece by piece as the map says. */
function* segmented(
  sink: Sink,
  described: Entry,
  realSize: number,
  map: ReadonlyArray<Segment>,
  stored: number
): Parser {
  const sum = map.reduce((total, { length }) => total + length, 0)
  const inOrder = map.every(({ offset }, index) => {
    const before = map[index - 1]
    return before === undefined || offset >= before.offset + before.length
  })
  const last = map.at(-1)
  if (!inOrder || sum !== stored || (last !== undefined && last.offset + last.length > realSize)) {
    throw new Refused(`is corrupt: the map of the sparse file ${showName(described.name)} makes no sense`)
  }
  const open = sink.file(described, realSize, stored)
  if (open === undefined) return yield* pass(stored)
  try {
    for (const { offset, length } of map) {
      for (let done = 0; done < length; ) {
        const piece = yield { some: length - done }
        open.write(piece, offset + done)
        done += piece.length
      }
    }
  } finally {
    open.close()
  }
  const filling = padded(stored) - stored
  if (filling > 0) yield { exact: filling }
}

const tooManySegments = (described: Entry) =>
  new Refused(`has a sparse file in more than ${MOST_SEGMENTS} pieces: ${showName(described.name)}`)

function* oldSparseFile(sink: Sink, described: Entry, block: Buffer, size: number): Parser {
  const realSize = oldSparse.realSize(block)
  const map = [...oldSparse.inHeader(block)]
  let more = oldSparse.goesOn(block)
  while (more) {
    const next = yield { exact: BLOCK }
    map.push(...oldSparse.inExtension(next))
    if (map.length > MOST_SEGMENTS) throw tooManySegments(described)
    more = oldSparse.extensionGoesOn(next)
  }
  yield* segmented(sink, described, realSize, map, size)
}

function* paxSparseFile(
  sink: Sink,
  described: Entry,
  size: number,
  sparse: NonNullable<ReturnType<typeof paxSparse>>
): Parser {
  if (sparse.map !== undefined) return yield* segmented(sink, described, sparse.realSize, sparse.map, size)
  // Version 1.0: decimal numbers in lines at the head of the content, the first says how many pairs follow.
  const pieces: Array<string> = []
  let lines = Number.POSITIVE_INFINITY
  for (let found = 0; found < lines; ) {
    if (pieces.length * BLOCK >= size) throw new Refused("is corrupt: the map of a sparse file has no end")
    const piece = (yield { exact: BLOCK }).toString("latin1")
    if (found === 0) {
      const count = /^([0-9]{1,9})\n/u.exec(piece)?.[1]
      if (count === undefined) throw new Refused("is corrupt: the map of a sparse file cannot be read")
      if (Number(count) > MOST_SEGMENTS) throw tooManySegments(described)
      lines = 1 + 2 * Number(count)
    }
    found += piece.split("\n").length - 1
    pieces.push(piece)
  }
  const map = pairs(pieces.join("").split("\n").slice(1, lines))
  yield* segmented(sink, described, sparse.realSize, map, size - pieces.length * BLOCK)
}
