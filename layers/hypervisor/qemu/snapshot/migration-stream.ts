/**
 * QEMU's migration stream, taken apart as it arrives: the pages of the guest's memory on one side, everything else on
 * the other. What is left is a stream that QEMU loads as it stands into a machine whose memory is there already.
 *
 * The stream is `QEVM`, a version, the machine's name, then sections. A section of the kind that is sent in parts says
 * its name in its first part only. The parts of `ram` are records of 8 bytes, a page's offset in its block with flags in
 * the low bits, each followed by what the flags say. When the first section in one piece starts, the memory is over and
 * all that follows is passed on unread. Whatever else is met is refused: better no sleep than a wrong memory.
 */

/** Pages that a record of QEMU's stands for on x86-64. */
export const PAGE_BYTES = 4096

/** The stream is not what this reads. */
export class StreamError extends Error {
  constructor(reason: string) {
    super(`QEMU's migration stream ${reason}`)
    this.name = "StreamError"
  }
}

export interface StreamSink {
  /** A page of the memory, which lies in `bytes` from `at` on; good for the time of the call. */
  readonly page: (offset: number, bytes: Buffer, at: number) => void
  /** A page that holds nothing but zeros. */
  readonly zeroPage: (offset: number) => void
  /** The rest of the stream, in order; the bytes are good for the time of the call. */
  readonly rest: (bytes: Uint8Array) => void
}

const MAGIC = 0x5145564d
const VERSION = 3
const SECTION = { eof: 0, start: 1, part: 2, end: 3, full: 4, configuration: 7, footer: 0x7e }
const FLAG = { zero: 0x02, memorySize: 0x04, page: 0x08, end: 0x10, continued: 0x20 }
const FLAGS = PAGE_BYTES - 1

/** Any record but a page is far shorter: the longest is the list of memory blocks. */
const LONGEST_RECORD = 64 * 1024

/** What is read again when more bytes have come. */
const INCOMPLETE = Symbol("more bytes are needed")

/** Fields off a piece of the stream. One that the piece ends within throws `INCOMPLETE`. */
class Reader {
  private bytes: Buffer = Buffer.alloc(0)
  private at = 0
  /** How far the bytes have been passed on, which is always up to the end of something. */
  private mark = 0

  begin(bytes: Buffer) {
    this.bytes = bytes
    this.at = 0
    this.mark = 0
  }
  has(count: number): boolean {
    return this.bytes.length - this.at >= count
  }
  u8(): number {
    return this.bytes.readUInt8(this.skip(1))
  }
  u32(): number {
    return this.bytes.readUInt32BE(this.skip(4))
  }
  /** Exact up to 2^53 - 1, which is beyond any address of a guest. */
  u64(): number {
    const at = this.skip(8)
    return this.bytes.readUInt32BE(at) * 2 ** 32 + this.bytes.readUInt32BE(at + 4)
  }
  text(count: number): string {
    const at = this.skip(count)
    return this.bytes.toString("latin1", at, at + count)
  }
  everything() {
    this.at = this.bytes.length
  }
  /** Where so many bytes begin in `piece`, which are read with that. */
  skip(count: number): number {
    if (!this.has(count)) throw INCOMPLETE
    const at = this.at
    this.at += count
    return at
  }
  /** The bytes read since the last call. */
  takeRead(): Uint8Array {
    const read = this.bytes.subarray(this.mark, this.at)
    this.mark = this.at
    return read
  }
  /** The bytes read since the last `takeRead` are not wanted. */
  dropRead() {
    this.mark = this.at
  }
  piece(): Buffer {
    return this.bytes
  }
  passedOn(): number {
    return this.mark
  }
}

/** What of the next piece is looked at to end a record that began in the last. */
const SEAM_BYTES = 16 * 1024

export interface MigrationStream {
  /** Takes the next bytes, which are not needed any more after the call; throws `StreamError`. */
  readonly push: (piece: Uint8Array) => void
  /** Call when the stream has ended; throws `StreamError` when that was too early. */
  readonly end: () => void
}

/** For the stream of a machine whose memory is one block of this name and size; pages of other blocks stay in the rest. */
export const makeMigrationStream = (
  memory: { readonly block: string; readonly bytes: number },
  sink: StreamSink
): MigrationStream => {
  const reader = new Reader()
  let left: Buffer = Buffer.alloc(0)
  let state: "head" | "sections" | "ram" | "footer" | "rest" = "head"
  let ramSection: number | undefined
  let block: string | undefined
  let sizeSeen = false

  const keep = () => sink.rest(reader.takeRead())

  const head = () => {
    if (reader.u32() !== MAGIC) throw new StreamError("has another beginning")
    const version = reader.u32()
    if (version !== VERSION) throw new StreamError(`has version ${version}, and ${VERSION} is known`)
    if (reader.u8() !== SECTION.configuration) throw new StreamError("does not name its machine")
    const length = reader.u32()
    if (length > 255) throw new StreamError(`names its machine in ${length} bytes`)
    reader.text(length)
    keep()
    state = "sections"
  }

  const section = () => {
    const type = reader.u8()
    switch (type) {
      case SECTION.start: {
        const id = reader.u32()
        const name = reader.text(reader.u8())
        reader.skip(8)
        if (name !== "ram") throw new StreamError(`has a section ${JSON.stringify(name)} in parts`)
        ramSection = id
        keep()
        state = "ram"
        return
      }
      case SECTION.part:
      case SECTION.end:
        if (reader.u32() !== ramSection) throw new StreamError("continues a section that it has not begun")
        keep()
        state = "ram"
        return
      case SECTION.full:
        if (ramSection === undefined || !sizeSeen) throw new StreamError("holds no memory")
        keep()
        state = "rest"
        return
      default:
        throw new StreamError(`has a section of the unknown type ${type}`)
    }
  }

  const blocks = (total: number) => {
    let sum = 0
    while (sum < total) {
      const name = reader.text(reader.u8())
      const bytes = reader.u64()
      sum += bytes
      if (name === memory.block) {
        if (bytes !== memory.bytes) {
          throw new StreamError(`has ${bytes} bytes of memory, and the machine ${memory.bytes}`)
        }
        sizeSeen = true
      }
    }
    keep()
  }

  const ramRecord = () => {
    const word = reader.u64()
    const flags = word % PAGE_BYTES
    const offset = word - flags
    if (flags === FLAG.end) {
      keep()
      state = "footer"
      return
    }
    if (flags === FLAG.memorySize) return blocks(offset)
    const kind = flags & ~FLAG.continued & FLAGS
    if (kind !== FLAG.page && kind !== FLAG.zero) {
      throw new StreamError(`has a memory record with the unknown flags 0x${flags.toString(16)}`)
    }
    const of = (flags & FLAG.continued) === 0 ? reader.text(reader.u8()) : block
    const at = reader.skip(kind === FLAG.page ? PAGE_BYTES : 1)
    block = of
    if (of !== memory.block) return keep()
    if (offset + PAGE_BYTES > memory.bytes) {
      throw new StreamError(`has a page at ${offset}, behind the memory's end`)
    }
    const fill = kind === FLAG.zero ? reader.piece()[at] : undefined
    if (fill === undefined) sink.page(offset, reader.piece(), at)
    else if (fill === 0) sink.zeroPage(offset)
    else sink.page(offset, Buffer.alloc(PAGE_BYTES, fill), 0)
    reader.dropRead()
  }

  const footer = () => {
    if (reader.u8() !== SECTION.footer || reader.u32() !== ramSection) {
      throw new StreamError("has a section without its end")
    }
    keep()
    state = "sections"
  }

  const rest = () => {
    reader.everything()
    keep()
  }
  const steps = { head, sections: section, ram: ramRecord, footer, rest }

  /** Reads what is whole of the bytes; gives how much that was. */
  const read = (bytes: Buffer): number => {
    reader.begin(bytes)
    try {
      while (reader.has(1)) steps[state]()
    } catch (error) {
      if (error !== INCOMPLETE) throw error
    }
    return reader.passedOn()
  }

  return {
    push: (piece) => {
      let bytes: Buffer = Buffer.from(piece.buffer, piece.byteOffset, piece.length)
      if (left.length > 0) {
        // Only the seam is copied, unless a record is longer than it.
        const done = read(Buffer.concat([left, bytes.subarray(0, SEAM_BYTES)]))
        bytes =
          done < left.length
            ? Buffer.concat([left.subarray(done), bytes])
            : bytes.subarray(done - left.length)
      }
      left = Buffer.from(bytes.subarray(read(bytes)))
      if (left.length > LONGEST_RECORD) throw new StreamError("has a record without an end")
    },
    end: () => {
      if (state !== "rest") throw new StreamError("ended before the machine's devices")
    }
  }
}
