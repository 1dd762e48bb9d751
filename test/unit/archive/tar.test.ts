/** The reader of tars, fed with pieces of any length and with bytes of any kind. */

import * as fs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import { feed } from "../../../layers/archive/feed.ts"
import { Refused, type Sink } from "../../../layers/archive/sink.ts"
import { readTar } from "../../../layers/archive/tar.ts"
import { workbench } from "./support.ts"

/** What is read, as text. */
const recorder = () => {
  const seen: Array<string> = []
  const sink: Sink = {
    directory: ({ name, mode }) => void seen.push(`directory ${name} ${mode}`),
    symbolicLink: ({ name }, target) => void seen.push(`link ${name} ${target}`),
    hardLink: ({ name }, target) => void seen.push(`hard ${name} ${target}`),
    characterDevice: ({ name }, major, minor) => void seen.push(`device ${name} ${major} ${minor}`),
    other: ({ name }, kind) => void seen.push(`${kind} ${name}`),
    file: ({ name, mtime }, size, stored) => {
      const content = new Map<number, number>()
      return {
        write: (bytes, position) => bytes.forEach((byte, index) => void content.set(position + index, byte)),
        close: () => {
          let sum = 0
          for (const [position, byte] of content) sum = (sum + (position + 1) * byte) % 1_000_003
          seen.push(`file ${name} ${mtime} ${size} ${stored} ${content.size} ${sum}`)
        }
      }
    }
  }
  return { seen, sink }
}

const read = (pieces: ReadonlyArray<Buffer>): ReadonlyArray<string> => {
  const { seen, sink } = recorder()
  const tar = feed(readTar(sink))
  for (const piece of pieces) {
    const lent = Buffer.from(piece)
    tar.push(lent)
    // The reader may keep nothing of it.
    lent.fill(0xaa)
  }
  tar.end()
  return seen
}

const cut = (bytes: Buffer, lengths: ReadonlyArray<number>): ReadonlyArray<Buffer> => {
  const pieces: Array<Buffer> = []
  for (let place = 0, turn = 0; place < bytes.length; turn += 1) {
    const length = lengths[turn % lengths.length] ?? 1
    pieces.push(bytes.subarray(place, place + length))
    place += length
  }
  return pieces
}

const SCRIPT =
  "mkdir -p t/d; echo one > t/d/one; ln t/d/one t/two; ln -s x t/link; mkfifo t/pipe; truncate -s 900K t/sparse; for n in 1 2 3 4 5 6; do echo part$n | dd of=t/sparse bs=64K seek=$((n * 2)) conv=notrunc status=none; done; echo long > t/$(printf 'n%.0s' {1..180});"

const formats = [
  "gnu -S",
  "pax -S --sparse-version=0.0",
  "pax -S --sparse-version=0.1",
  "pax -S",
  "ustar --exclude=sparse"
]

const archives = Effect.gen(function* () {
  const bench = yield* workbench
  return formats.map((format) =>
    fs.readFileSync(
      bench.made(
        `rm -rf t; ${SCRIPT} tar --warning=none --format=${format} -b2 -cf archive t || test -s archive`
      )
    )
  )
})

describe("the reader of tars", () => {
  it.live("reads the same whatever the pieces that it is given", () =>
    Effect.gen(function* () {
      for (const bytes of yield* archives) {
        const whole = read([bytes])
        assert.isAbove(whole.length, 5)
        fc.assert(
          fc.property(
            fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1, maxLength: 6 }),
            (lengths) => assert.deepStrictEqual(read(cut(bytes, lengths)), whole)
          ),
          { numRuns: 20 }
        )
      }
    })
  )

  it.live("refuses what is damaged by name, and never fails in another way or forgets to end", () =>
    Effect.gen(function* () {
      for (const bytes of yield* archives) {
        fc.assert(
          fc.property(
            fc.array(fc.tuple(fc.nat({ max: bytes.length - 1 }), fc.nat({ max: 255 })), {
              minLength: 1,
              maxLength: 4
            }),
            fc.nat({ max: bytes.length }),
            fc.boolean(),
            (changes, end, isCut) => {
              const damaged = Buffer.from(bytes)
              for (const [place, byte] of changes) {
                damaged[place] = byte
                sealed(damaged, place)
              }
              try {
                read([isCut ? damaged.subarray(0, end) : damaged])
              } catch (error) {
                assert.instanceOf(error, Refused)
              }
            }
          ),
          { numRuns: 100 }
        )
      }
    })
  )

  it.live("takes no tar for whole that was cut anywhere before its end", () =>
    Effect.gen(function* () {
      for (const bytes of yield* archives) {
        const end = bytes.findLastIndex((byte) => byte !== 0)
        fc.assert(
          fc.property(fc.nat({ max: end }), (length) => {
            assert.throws(() => read([bytes.subarray(0, length)]), Refused)
          }),
          { numRuns: 30 }
        )
      }
    })
  )
})

/** Sets the checksum of the block right, so that a damage in a header is read and not just noticed. */
const sealed = (bytes: Buffer, place: number): void => {
  const start = place - (place % 512)
  const block = bytes.subarray(start, start + 512)
  if (block.toString("latin1", 257, 262) !== "ustar") return
  block.fill(" ", 148, 156)
  block.write(
    block
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, "0"),
    148,
    "latin1"
  )
}
