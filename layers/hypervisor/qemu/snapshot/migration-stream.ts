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
  /** A page of the memory; the bytes are good for the time of the call. */
  readonly page: (offset: number, bytes: Uint8Array) => void
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

/** Bytes that have arrived and are not read yet. A read that finds too few begins again when more have come. */
class Pending {
  private bytes: Buffer = Buffer.alloc(0)
  private at = 0
  /** From where on the bytes read have not been passed on. */
  private mark = 0

  add(piece: Uint8Array) {
    const left = this.bytes.subarray(this.mark)
    this.bytes =
      left.length === 0
        ? Buffer.from(piece.buffer, piece.byteOffset, piece.length)
        : Buffer.concat([left, piece])
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
  /** At most 2^53 - 1, which is beyond any address of a guest. */
  u64(): number {
    const at = this.skip(8)
    return this.bytes.readUInt32BE(at) * 2 ** 32 + this.bytes.readUInt32BE(at + 4)
  }
  text(count: number): string {
    const at = this.skip(count)
    return this.bytes.toString("latin1", at, at + count)
  }
  raw(count: number): Uint8Array {
    const at = this.skip(count)
    return this.bytes.subarray(at, at + count)
  }
  everything(): Uint8Array {
    return this.raw(this.bytes.length - this.at)
  }
  private skip(count: number): number {
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
  /** As if nothing had been read since the last `takeRead`. */
  rewind() {
    this.at = this.mark
  }
  unread(): number {
    return this.bytes.length - this.mark
  }
}

const INCOMPLETE = Symbol("more bytes are needed")

export interface MigrationStream {
  /** Takes the next bytes; throws `StreamError`. */
  readonly push: (piece: Uint8Array) => void
  /** Call when the stream has ended; throws `StreamError` when that was too early. */
  readonly end: () => void
}

/** For the stream of a machine whose memory is one block of this name and size; pages of other blocks stay in the rest. */
export const makeMigrationStream = (
  memory: { readonly block: string; readonly bytes: number },
  sink: StreamSink
): MigrationStream => {
  const pending = new Pending()
  let state: "head" | "sections" | "ram" | "footer" | "rest" = "head"
  let ramSection: number | undefined
  let block: string | undefined
  let sizeSeen = false

  const keep = () => sink.rest(pending.takeRead())
  const drop = () => {
    pending.takeRead()
  }

  const head = () => {
    if (pending.u32() !== MAGIC) throw new StreamError("has another beginning")
    const version = pending.u32()
    if (version !== VERSION) throw new StreamError(`has version ${version}, and ${VERSION} is known`)
    if (pending.u8() !== SECTION.configuration) throw new StreamError("does not name its machine")
    const length = pending.u32()
    if (length > 255) throw new StreamError(`names its machine in ${length} bytes`)
    pending.text(length)
    keep()
    state = "sections"
  }

  const section = () => {
    const type = pending.u8()
    switch (type) {
      case SECTION.start: {
        const id = pending.u32()
        const name = pending.text(pending.u8())
        pending.raw(8)
        if (name !== "ram") throw new StreamError(`has a section ${JSON.stringify(name)} in parts`)
        ramSection = id
        keep()
        state = "ram"
        return
      }
      case SECTION.part:
      case SECTION.end:
        if (pending.u32() !== ramSection) throw new StreamError("continues a section that it has not begun")
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
      const name = pending.text(pending.u8())
      const bytes = pending.u64()
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
    const word = pending.u64()
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
    const of = (flags & FLAG.continued) === 0 ? pending.text(pending.u8()) : block
    const bytes = pending.raw(kind === FLAG.page ? PAGE_BYTES : 1)
    block = of
    if (of !== memory.block) return keep()
    if (offset + PAGE_BYTES > memory.bytes)
      throw new StreamError(`has a page at ${offset}, behind the memory's end`)
    if (kind === FLAG.page) sink.page(offset, bytes)
    else if (bytes[0] === 0) sink.zeroPage(offset)
    else sink.page(offset, Buffer.alloc(PAGE_BYTES, bytes[0]))
    drop()
  }

  const footer = () => {
    if (pending.u8() !== SECTION.footer || pending.u32() !== ramSection) {
      throw new StreamError("has a section without its end")
    }
    keep()
    state = "sections"
  }

  const rest = () => {
    pending.everything()
    keep()
  }
  const steps = { head, sections: section, ram: ramRecord, footer, rest }

  return {
    push: (piece) => {
      pending.add(piece)
      try {
        while (pending.has(1)) steps[state]()
      } catch (error) {
        if (error !== INCOMPLETE) throw error
        pending.rewind()
        if (pending.unread() > LONGEST_RECORD) throw new StreamError("has a record without an end")
      }
    },
    end: () => {
      if (state !== "rest") throw new StreamError("ended before the machine's devices")
    }
  }
}
