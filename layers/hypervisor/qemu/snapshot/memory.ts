/** The memory file of a snapshot: written as the pages come, and verified page by page. */
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

const NO_PAGE = 0
const zeros = Buffer.alloc(PIECE_BYTES)

/**
 * The checksum of a page that is stored; 0 stands for a page of zeros, which is not. A CRC differs for every single bit that
 * is flipped, and none makes 1 out of 0.
 */
const pageSum = (page: Uint8Array) => crc32(page) || 1

export interface MemoryWriter {
  /** Takes a copy of the page, which lies in `bytes` from `at` on. */
  readonly page: (offset: number, bytes: Buffer, at: number) => void
  readonly zeroPage: (offset: number) => void
  /** Whether there is no room until `onRoom` is called. */
  readonly isFull: () => boolean
  /** Writes what is still held, waits for all of it, and calls back with the first error there was. */
  readonly finish: (done: (error: Error | undefined) => void) => void
  readonly sums: Uint32Array
}

/** Room for pages that follow each other, with a view of each: making them anew for every page costs more than the checksums. */
interface Piece {
  readonly bytes: Buffer
  readonly pages: ReadonlyArray<Uint8Array>
  start: number
  length: number
}

const makePiece = (): Piece => {
  const bytes = Buffer.allocUnsafe(PIECE_BYTES)
  const pages = Array.from({ length: PIECE_BYTES / PAGE_BYTES }, (_, page) =>
    bytes.subarray(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
  )
  return { bytes, pages, start: 0, length: 0 }
}

/** Writes to an empty file of the memory's size. `onRoom` is called when there is room again, or nothing will help any more. */
export const makeMemoryWriter = (fd: number, memoryBytes: number, onRoom: () => void): MemoryWriter => {
  const sums = new Uint32Array(memoryBytes / PAGE_BYTES)
  /** Pages that are in the file, or on their way. */
  const written = new Uint8Array(sums.length)
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

  const conclude = () => {
    const [next] = late
    if (next === undefined || failure !== undefined) {
      finished?.(failure)
      return
    }
    const [offset, page] = next
    late.delete(offset)
    underWay += 1
    writeOut({ bytes: page, pages: [], start: offset, length: PAGE_BYTES }, 0)
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

  /** Copies a page to where the next one goes; gives the copy. */
  const put = (offset: number, bytes: Buffer, at: number): Uint8Array => {
    if (piece !== undefined && !reaches(piece, offset)) send()
    if (piece === undefined) {
      piece = takeFree()
      piece.start = offset
      piece.length = 0
    }
    written[offset / PAGE_BYTES] = 1
    bytes.copy(piece.bytes, piece.length, at, at + PAGE_BYTES)
    piece.length += PAGE_BYTES
    return piece.pages[piece.length / PAGE_BYTES - 1] as Uint8Array
  }

  const putLate = (offset: number, bytes: Buffer, at: number): Uint8Array => {
    const page = Buffer.from(bytes.subarray(at, at + PAGE_BYTES))
    late.set(offset, page)
    return page
  }

  return {
    sums,
    page: (offset, bytes, at) => {
      const again = written[offset / PAGE_BYTES] !== 0
      sums[offset / PAGE_BYTES] = pageSum(again ? putLate(offset, bytes, at) : put(offset, bytes, at))
    },
    zeroPage: (offset) => {
      // the file is empty: only a page that was told before has to be made zero
      if (written[offset / PAGE_BYTES] !== 0) putLate(offset, zeros, 0)
      sums[offset / PAGE_BYTES] = NO_PAGE
    },
    isFull: () => free.length === 0 && made >= PIECES && failure === undefined,
    finish: (done) => {
      send()
      finished = done
      if (underWay === 0) conclude()
    }
  }
}

/** The first page of the piece that is not as its sum says. */
const damagedPage = (piece: Buffer, sums: Uint32Array, firstPage: number): number | undefined => {
  const pages = piece.length / PAGE_BYTES
  for (let page = 0; page < pages; ) {
    let end = page + 1
    if (sums[firstPage + page] === NO_PAGE) {
      while (end < pages && sums[firstPage + end] === NO_PAGE) end++
      const from = page * PAGE_BYTES
      const to = end * PAGE_BYTES
      if (piece.compare(zeros, 0, to - from, from, to) !== 0) return firstPage + page
    } else if (pageSum(piece.subarray(page * PAGE_BYTES, end * PAGE_BYTES)) !== sums[firstPage + page]) {
      return firstPage + page
    }
    page = end
  }
  return undefined
}

const readers = 2

/** Reads all of the memory file and compares each page with its checksum. Gives what is wrong with it, if anything. */
export const verifyMemory = (
  path: string,
  sums: Uint32Array
): Effect.Effect<string | undefined, FileProblem> =>
  Effect.gen(function* () {
    const handle = yield* openFile(path, fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW)
    const size = sums.length * PAGE_BYTES
    const { size: actual } = yield* onFile(path, () => handle.stat())
    if (actual !== size) return `it has ${actual} bytes instead of ${size}`
    let next = 0
    let damage: string | undefined
    const reader = Effect.gen(function* () {
      const buffer = Buffer.allocUnsafe(PIECE_BYTES)
      while (next < size && damage === undefined) {
        const at = next
        next += PIECE_BYTES
        const wanted = Math.min(PIECE_BYTES, size - at)
        for (let have = 0; have < wanted; ) {
          const { bytesRead } = yield* onFile(path, () => handle.read(buffer, have, wanted - have, at + have))
          if (bytesRead === 0) return
          have += bytesRead
        }
        const page = damagedPage(buffer.subarray(0, wanted), sums, at / PAGE_BYTES)
        if (page !== undefined) damage ??= `its page ${page} has changed`
      }
    })
    yield* Effect.all(
      Array.from({ length: readers }, () => reader),
      { concurrency: "unbounded", discard: true }
    )
    return damage
  }).pipe(Effect.scoped)
