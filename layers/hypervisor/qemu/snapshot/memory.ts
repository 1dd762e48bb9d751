/** The memory file of a snapshot: written as the pages come, and verified extent by extent. */
import * as fs from "node:fs"
import { crc32 } from "node:zlib"
import { Effect } from "effect"
import { openFile } from "../../../files/durable.ts"
import { type FileProblem, onFile } from "../../../files/problem.ts"
import { PAGE_BYTES } from "./migration-stream.ts"

/** How much is written or read at a time. */
const PIECE_BYTES = 1024 * 1024
/** Pieces that are filled or on their way to the file. */
const PIECES = 8
/** The disk is set to work after so many bytes, so that little is left to wait for at the end. */
const FLUSH_EVERY_BYTES = 16 * 1024 * 1024

/**
 * Holes up to this size are filled with zeros: a filesystem that tells its disk what it frees takes ms for each piece of a
 * file that is deleted, and a guest's memory would have hundreds.
 */
const FILLED_GAP_BYTES = 128 * 1024

const zeros = Buffer.alloc(PIECE_BYTES)

/**
 * What is stored of the memory: for each extent its first page, how many pages it has, and their CRC-32, which differs for every
 * single bit that is flipped. No two overlap. The rest of the memory is zeros, and holes in the file.
 */
export type Extents = Uint32Array
const FIELDS = 3

export interface MemoryWriter {
  /** Takes a copy of the page, which lies in `bytes` from `at` on. */
  readonly page: (offset: number, bytes: Buffer, at: number) => void
  readonly zeroPage: (offset: number) => void
  /** Whether there is no room until `onRoom` is called. */
  readonly isFull: () => boolean
  /** Writes what is still held, waits for all of it, and calls back with the first error there was. */
  readonly finish: (done: (error: Error | undefined) => void) => void
  /** What is in the file, once it is finished. */
  readonly extents: () => Extents
}

/** Room for pages that follow each other. */
interface Piece {
  readonly bytes: Buffer
  start: number
  length: number
}

const makePiece = (): Piece => ({ bytes: Buffer.allocUnsafe(PIECE_BYTES), start: 0, length: 0 })

/** Writes to an empty file of the memory's size. `onRoom` is called when there is room again, or nothing will help any more. */
export const makeMemoryWriter = (fd: number, memoryBytes: number, onRoom: () => void): MemoryWriter => {
  /** Pages that are in the file, or on their way. */
  const written = new Uint8Array(memoryBytes / PAGE_BYTES)
  const stored: Array<{ readonly first: number; readonly pages: number; sum: number }> = []
  const free: Array<Piece> = []
  let made = 0
  let piece: Piece | undefined
  let underWay = 0
  let unflushed = 0
  let flushing = false
  let failure: Error | undefined
  let finished: ((error: Error | undefined) => void) | undefined
  /** Pages that came when there was one already: written when all else is, because writes that are under way may overtake each other. */
  const late = new Map<number, Buffer>()
  const rewritten = new Set<number>()

  const conclude = () => {
    const [next] = late
    if (next === undefined || failure !== undefined) {
      try {
        if (failure === undefined) sumAgain()
      } catch (error) {
        failure = error instanceof Error ? error : new Error(String(error))
      }
      finished?.(failure)
      return
    }
    const [offset, page] = next
    late.delete(offset)
    rewritten.add(offset / PAGE_BYTES)
    underWay += 1
    writeOut({ bytes: page, start: offset, length: PAGE_BYTES }, 0)
  }

  /** The checksums of extents in which a page was written a second time. */
  const sumAgain = () => {
    for (const extent of stored) {
      const { first, pages } = extent
      if (!Array.from({ length: pages }, (_, page) => rewritten.has(first + page)).includes(true)) continue
      const bytes = Buffer.alloc(pages * PAGE_BYTES)
      fs.readSync(fd, bytes, 0, bytes.length, first * PAGE_BYTES)
      extent.sum = crc32(bytes)
    }
  }

  const settle = (error: Error | null) => {
    underWay -= 1
    failure ??= error ?? undefined
    if (finished === undefined) onRoom()
    else if (underWay === 0) conclude()
  }

  const writeOut = (full: Piece, done: number) => {
    fs.write(fd, full.bytes, done, full.length - done, full.start + done, (error, written) => {
      if (error === null && done + written < full.length) {
        writeOut(full, done + written)
        return
      }
      free.push(full)
      settle(error)
    })
  }

  const flushSome = () => {
    if (flushing || unflushed < FLUSH_EVERY_BYTES) return
    flushing = true
    unflushed = 0
    underWay += 1
    fs.fdatasync(fd, (error) => {
      flushing = false
      settle(error)
    })
  }

  const send = () => {
    if (piece === undefined) return
    underWay += 1
    unflushed += piece.length
    stored.push({
      first: piece.start / PAGE_BYTES,
      pages: piece.length / PAGE_BYTES,
      sum: crc32(piece.bytes.subarray(0, piece.length))
    })
    writeOut(piece, 0)
    piece = undefined
    flushSome()
  }

  const takeFree = (): Piece => {
    const used = free.pop()
    if (used !== undefined) return used
    // beyond `PIECES` only when the caller does not wait for room
    made += 1
    return makePiece()
  }

  /** Whether the page belongs at the end of the piece, behind a small hole that is then filled with zeros. */
  const reaches = (open: Piece, offset: number): boolean => {
    const end = open.start + open.length
    const gap = offset - end
    if (gap < 0 || gap > FILLED_GAP_BYTES || open.length + gap >= PIECE_BYTES) return false
    if (written.subarray(end / PAGE_BYTES, offset / PAGE_BYTES).includes(1)) return false
    open.bytes.fill(0, open.length, open.length + gap)
    written.fill(1, end / PAGE_BYTES, offset / PAGE_BYTES)
    open.length += gap
    return true
  }

  /** Copies a page to where the next one goes. */
  const put = (offset: number, bytes: Buffer, at: number) => {
    if (piece !== undefined && !reaches(piece, offset)) send()
    if (piece === undefined) {
      piece = takeFree()
      piece.start = offset
      piece.length = 0
    }
    written[offset / PAGE_BYTES] = 1
    bytes.copy(piece.bytes, piece.length, at, at + PAGE_BYTES)
    piece.length += PAGE_BYTES
  }

  const putLate = (offset: number, bytes: Buffer, at: number) => {
    late.set(offset, Buffer.from(bytes.subarray(at, at + PAGE_BYTES)))
  }

  return {
    extents: () => Uint32Array.from(stored.flatMap(({ first, pages, sum }) => [first, pages, sum])),
    page: (offset, bytes, at) => {
      if (written[offset / PAGE_BYTES] === 0) put(offset, bytes, at)
      else putLate(offset, bytes, at)
    },
    zeroPage: (offset) => {
      // the file is empty: only a page that was told before has to be made zero
      if (written[offset / PAGE_BYTES] !== 0) putLate(offset, zeros, 0)
    },
    isFull: () => free.length === 0 && made >= PIECES && failure === undefined,
    finish: (done) => {
      send()
      finished = done
      if (underWay === 0) conclude()
    }
  }
}

/** A part of the memory file, in bytes, and the checksum that it has; undefined: it is zeros. */
interface Part {
  readonly start: number
  readonly length: number
  readonly sum: number | undefined
}

/** Cuts what lies between two extents into pieces. */
const gap = (start: number, end: number): ReadonlyArray<Part> =>
  Array.from({ length: Math.ceil((end - start) / PIECE_BYTES) }, (_, index) => {
    const from = start + index * PIECE_BYTES
    return { start: from, length: Math.min(PIECE_BYTES, end - from), sum: undefined }
  })

/** The parts of the file, without holes or with them; undefined when the extents are none of a memory of that size. */
const partsOf = (extents: Extents, size: number, holesToo: boolean): ReadonlyArray<Part> | undefined => {
  if (extents.length % FIELDS !== 0) return undefined
  const stored = Array.from({ length: extents.length / FIELDS }, (_, index) => {
    const [first = 0, pages = 0, sum = 0] = extents.subarray(index * FIELDS, (index + 1) * FIELDS)
    return { start: first * PAGE_BYTES, length: pages * PAGE_BYTES, sum }
  }).sort((a, b) => a.start - b.start)
  const parts: Array<Part> = []
  let end = 0
  for (const extent of stored) {
    if (extent.start < end || extent.length === 0 || extent.length > PIECE_BYTES) return undefined
    if (holesToo) parts.push(...gap(end, extent.start))
    parts.push(extent)
    end = extent.start + extent.length
  }
  if (end > size) return undefined
  if (holesToo) parts.push(...gap(end, size))
  return parts
}

const readers = 2

/** What the memory file is to be. */
export interface MemoryShape {
  readonly bytes: number
  /** What it takes of the disk: where that is as it was, so are its holes. */
  readonly stored: number
}

/**
 * Reads what is stored of the memory and compares it with its checksums. Gives what is wrong with it, if anything. Holes are
 * read only when the file takes more or less of the disk than it did: what has no place there cannot have changed.
 */
export const verifyMemory = (
  path: string,
  extents: Extents,
  shape: MemoryShape
): Effect.Effect<string | undefined, FileProblem> =>
  Effect.gen(function* () {
    const handle = yield* openFile(path, fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW)
    const { size, blocks } = yield* onFile(path, () => handle.stat())
    if (size !== shape.bytes) return `it has ${size} bytes instead of ${shape.bytes}`
    const parts = partsOf(extents, size, blocks * 512 !== shape.stored)
    if (parts === undefined) return "its checksums are not those of a memory of that size"
    let next = 0
    let damage: string | undefined
    const reader = Effect.gen(function* () {
      const buffer = Buffer.allocUnsafe(PIECE_BYTES)
      while (damage === undefined) {
        const part = parts[next++]
        if (part === undefined) return
        const { start, length, sum } = part
        for (let have = 0; have < length; ) {
          const { bytesRead } = yield* onFile(path, () =>
            handle.read(buffer, have, length - have, start + have)
          )
          if (bytesRead === 0) {
            damage = "it ends too soon"
            return
          }
          have += bytesRead
        }
        const right =
          sum === undefined
            ? buffer.compare(zeros, 0, length, 0, length) === 0
            : crc32(buffer.subarray(0, length)) === sum
        if (!right)
          damage ??= `something has changed in its ${length / PAGE_BYTES} pages from ${start / PAGE_BYTES} on`
      }
    })
    yield* Effect.all(
      Array.from({ length: readers }, () => reader),
      { concurrency: "unbounded", discard: true }
    )
    return damage
  }).pipe(Effect.scoped)
