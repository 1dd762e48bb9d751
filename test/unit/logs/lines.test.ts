import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { LineCutter, MAX_LINE_BYTES, programText, visibleText } from "../../../layers/logs/lines.ts"

/** Text with newlines, characters of every UTF-8 length, and bytes that are none. */
const output = fc
  .array(
    fc.oneof(
      fc.constantFrom("\n", "\r\n", "a", "é", "€", "\u{1f600}").map((text) => Buffer.from(text)),
      fc.uint8Array({ maxLength: 4 }).map((bytes) => Buffer.from(bytes))
    ),
    { maxLength: 60 }
  )
  .map((pieces) => Buffer.concat(pieces))

const cutAt = (bytes: Buffer, places: ReadonlyArray<number>): ReadonlyArray<Buffer> => {
  const edges = [0, ...places.map((place) => place % (bytes.length + 1)), bytes.length].sort((a, b) => a - b)
  return edges.slice(1).map((edge, index) => bytes.subarray(edges[index], edge))
}

const linesOf = (pieces: ReadonlyArray<Uint8Array>): ReadonlyArray<string> => {
  const cutter = new LineCutter()
  const lines = pieces.flatMap((piece) => cutter.push(piece))
  const rest = cutter.takeAll()
  return rest === undefined ? lines : [...lines, rest]
}

describe("output cut into lines", () => {
  it("gives the lines that a decoder gives, however the output comes in pieces", () => {
    fc.assert(
      fc.property(output, fc.array(fc.nat(1000), { maxLength: 10 }), (bytes, places) => {
        const whole = bytes.toString("utf8").split("\n")
        if (whole.at(-1) === "") whole.pop()
        assert.deepStrictEqual(linesOf(cutAt(bytes, places)), whole)
      }),
      { numRuns: 1000 }
    )
  })

  it("loses no byte of valid text and makes no replacement in it, though it is handed out at any moment", () => {
    const text = fc.string({ unit: "binary", maxLength: 40 }).map((value) => value.toWellFormed())
    fc.assert(
      fc.property(text, fc.array(fc.nat(1000), { maxLength: 10 }), (value, places) => {
        const cutter = new LineCutter()
        const bytes = Buffer.from(value.replaceAll("\n", ""))
        const parts = cutAt(bytes, places).flatMap((piece) => {
          const lines = cutter.push(piece)
          const unfinished = cutter.takeUnfinished()
          return unfinished === undefined ? lines : [...lines, unfinished]
        })
        assert.strictEqual([...parts, cutter.takeAll() ?? ""].join(""), bytes.toString("utf8"))
      }),
      { numRuns: 1000 }
    )
  })

  it("keeps at most one line's bytes of an output that never ends its line", () => {
    const cutter = new LineCutter()
    const piece = Buffer.from("€".repeat(10_000))
    const lines = Array.from({ length: 20 }, () => cutter.push(piece)).flat()
    for (const line of lines) {
      assert.isAtMost(Buffer.byteLength(line), MAX_LINE_BYTES)
      assert.isAbove(Buffer.byteLength(line), MAX_LINE_BYTES - 4)
    }
    assert.isAtMost(Buffer.byteLength(cutter.takeAll() ?? ""), MAX_LINE_BYTES)
  })
})

describe("the text of a record", () => {
  it("is on one line and holds nothing that a terminal obeys, whatever the program printed", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (line) => {
        assert.notMatch(programText(line), /[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]/u)
        assert.isFalse(programText(line).startsWith("[nibrun] "))
      }),
      { numRuns: 1000 }
    )
  })

  it("is what the program printed where that is harmless", () => {
    for (const line of ["", "plain", "\ttabbed", "ünï €\u{1f600}", "C:\\x0a", " [nibrun] "]) {
      assert.strictEqual(programText(line), line)
      assert.strictEqual(visibleText(line), line)
    }
  })
})
