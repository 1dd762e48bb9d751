import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { makeMigrationStream, PAGE_BYTES } from "../../../layers/hypervisor/qemu/snapshot/migration-stream.ts"
import { u32, u64 } from "./big-endian.ts"

const BLOCK = "microvm.ram"
const PAGES = 8
const MEMORY = { block: BLOCK, bytes: PAGES * PAGE_BYTES }

const name = (text: string) => Buffer.concat([Buffer.from([text.length]), Buffer.from(text)])

const HEAD = Buffer.concat([Buffer.from("QEVM"), u32(3), Buffer.from([7]), u32(7), Buffer.from("microvm")])
const FOOTER = Buffer.concat([Buffer.from([0x7e]), u32(2)])
const END = u64(0x10)
const start = (blocks: ReadonlyArray<readonly [string, number]>) =>
  Buffer.concat([
    Buffer.from([1]),
    u32(2),
    name("ram"),
    u32(0),
    u32(4),
    u64(blocks.reduce((sum, [, bytes]) => sum + bytes, 0) + 0x04),
    ...blocks.map(([block, bytes]) => Buffer.concat([name(block), u64(bytes)])),
    END,
    FOOTER
  ])
const BLOCKS = [
  [BLOCK, MEMORY.bytes],
  ["microvm.bios", PAGE_BYTES]
] as const
const part = (...records: ReadonlyArray<Buffer>) =>
  Buffer.concat([Buffer.from([2]), u32(2), ...records, END, FOOTER])
const page = (number: number, fill: number, block?: string) =>
  Buffer.concat([
    u64(number * PAGE_BYTES + 0x08 + (block === undefined ? 0x20 : 0)),
    block === undefined ? Buffer.alloc(0) : name(block),
    Buffer.alloc(PAGE_BYTES, fill)
  ])
const filled = (number: number, fill: number, block?: string) =>
  Buffer.concat([
    u64(number * PAGE_BYTES + 0x02 + (block === undefined ? 0x20 : 0)),
    block === undefined ? Buffer.alloc(0) : name(block),
    Buffer.from([fill])
  ])
const DEVICES = Buffer.concat([
  Buffer.from([4]),
  u32(3),
  name("cpu"),
  Buffer.from("whatever \x02\x00\x08 a device says"),
  Buffer.from([0])
])

/** What comes of a stream that arrives in these pieces. */
const read = (stream: Buffer, cuts: ReadonlyArray<number> = []) => {
  const pages = new Map<number, number>()
  const rest: Array<Buffer> = []
  const parser = makeMigrationStream(MEMORY, {
    page: (offset, bytes, at) => {
      const copy = Buffer.from(bytes.subarray(at, at + PAGE_BYTES))
      assert.isTrue(copy.every((byte) => byte === copy[0]))
      pages.set(offset / PAGE_BYTES, copy[0] ?? 0)
    },
    zeroPage: (offset) => pages.set(offset / PAGE_BYTES, 0),
    rest: (bytes) => rest.push(Buffer.from(bytes))
  })
  let from = 0
  for (const to of [...cuts, stream.length]) {
    // the piece is overwritten after the call, as a buffer that is read into again is
    const piece = Buffer.from(stream.subarray(from, to))
    parser.push(piece)
    piece.fill(0xee)
    from = to
  }
  parser.end()
  return { pages: [...pages], rest: Buffer.concat(rest).toString("hex") }
}

const WHOLE = Buffer.concat([
  HEAD,
  start(BLOCKS),
  part(
    page(0, 0xaa, BLOCK),
    page(1, 0xbb),
    filled(2, 0),
    filled(3, 0x7f),
    page(0, 0x55, "microvm.bios"),
    filled(7, 0, BLOCK)
  ),
  part(page(5, 0x02, BLOCK)),
  DEVICES
])
const LEFT = Buffer.concat([HEAD, start(BLOCKS), part(page(0, 0x55, "microvm.bios")), part(), DEVICES])

describe("QEMU's migration stream", () => {
  it("is taken apart into the pages of the memory and a stream without them", () => {
    const { pages, rest } = read(WHOLE)
    assert.deepStrictEqual(pages, [
      [0, 0xaa],
      [1, 0xbb],
      [2, 0],
      [3, 0x7f],
      [7, 0],
      [5, 2]
    ])
    assert.strictEqual(rest, LEFT.toString("hex"))
  })

  it("comes to the same however it arrives", () => {
    const expected = read(WHOLE)
    fc.assert(
      fc.property(fc.array(fc.nat(WHOLE.length), { maxLength: 12 }), (cuts) => {
        assert.deepStrictEqual(
          read(
            WHOLE,
            cuts.sort((a, b) => a - b)
          ),
          expected
        )
      })
    )
    assert.deepStrictEqual(
      read(
        WHOLE,
        Array.from({ length: WHOLE.length }, (_, at) => at)
      ),
      expected
    )
  })

  const refused: ReadonlyArray<readonly [string, Buffer, RegExp]> = [
    ["that begins otherwise", Buffer.from("GET / HTTP/1.1\r\n\r\n"), /another beginning/u],
    ["of another version", Buffer.concat([Buffer.from("QEVM"), u32(4), HEAD]), /version 4, and 3/u],
    [
      "with another section in parts",
      Buffer.concat([HEAD, Buffer.from([1]), u32(9), name("block"), u32(0), u32(1)]),
      /"block" in parts/u
    ],
    [
      "of a machine with another memory",
      Buffer.concat([HEAD, start([[BLOCK, PAGE_BYTES]])]),
      /4096 bytes of memory/u
    ],
    [
      "that lacks the memory",
      Buffer.concat([HEAD, start([["other", PAGE_BYTES]]), DEVICES]),
      /holds no memory/u
    ],
    [
      "with a page behind the memory's end",
      Buffer.concat([HEAD, start(BLOCKS), part(page(PAGES, 1, BLOCK))]),
      /behind the memory's end/u
    ],
    [
      "with records that are not known",
      Buffer.concat([HEAD, start(BLOCKS), part(u64(0x100))]),
      /unknown flags 0x100/u
    ],
    [
      "that continues what it has not begun",
      Buffer.concat([HEAD, start(BLOCKS), Buffer.from([2]), u32(77)]),
      /not begun/u
    ],
    ["of sections that are not known", Buffer.concat([HEAD, Buffer.from([9])]), /unknown type 9/u],
    ["that ends within its memory", WHOLE.subarray(0, 9000), /ended before/u],
    ["that never ends a record", Buffer.concat([HEAD, start([[BLOCK, 2 ** 40]])]), /bytes of memory/u]
  ]
  for (const [what, stream, reason] of refused) {
    it(`${what} is refused`, () => {
      assert.throws(() => read(stream), reason)
    })
  }

  it("is refused or taken whatever its bytes are, and never ends in anything else", () => {
    fc.assert(
      fc.property(fc.nat(WHOLE.length - 1), fc.integer({ min: 1, max: 255 }), (at, change) => {
        const stream = Buffer.from(WHOLE)
        stream[at] = (stream[at] ?? 0) ^ change
        try {
          read(stream)
        } catch (error) {
          assert.include(["StreamError", "AssertionError"], (error as Error).name)
        }
      }),
      { numRuns: 500 }
    )
  })
})
