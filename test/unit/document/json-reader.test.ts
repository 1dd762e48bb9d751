import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import { positionsOf, readJson } from "../../../src/document/json-reader.ts"
import type { Path } from "../../../src/document/problems.ts"
import { mutatedText, textMutation } from "./arbitraries.ts"

const isJson = (text: string) => Result.isSuccess(Result.try(() => JSON.parse(text)))

/** Every path of a value, with the value. */
const paths = (value: unknown, path: Path = []): ReadonlyArray<readonly [Path, unknown]> => [
  [path, value],
  ...(Array.isArray(value)
    ? value.flatMap((item, index) => paths(item, [...path, index]))
    : typeof value === "object" && value !== null
      ? Object.entries(value).flatMap(([key, member]) => paths(member, [...path, key]))
      : [])
]

describe("the reader of places in a JSON text", () => {
  it("takes and refuses what JSON.parse takes and refuses", () => {
    const check = (text: string) => {
      const { syntaxError } = readJson(text, {})
      assert.strictEqual(syntaxError === undefined, isJson(text), text)
      if (syntaxError !== undefined) assert.isAtMost(syntaxError.offset, text.length)
    }
    fc.assert(
      fc.property(fc.json(), textMutation, fc.constantFrom(0, 2), (json, change, indent) => {
        const text = JSON.stringify(JSON.parse(json), null, indent)
        check(text)
        check(mutatedText(text, change))
      }),
      { numRuns: 2000 }
    )
    fc.assert(fc.property(fc.string(), check))
    for (const text of [
      "-",
      "-0",
      "01",
      "1.",
      ".5",
      "1e",
      "1e+5",
      "+1",
      "NaN",
      "truefalse",
      "nulll",
      '"\\u12g4"',
      '"\\u00e9"',
      '"\t"',
      '"\u007f"',
      '"\u2028"',
      "[1,]",
      "{,}",
      "[1 2]",
      '{"a"}',
      '{"a":}',
      "{1:2}",
      "\u00a01",
      "\ufeff1"
    ])
      check(text)
  })
  it("finds every value where it starts, and every key", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), fc.constantFrom(0, 1), (value, indent) => {
        const text = JSON.stringify(value, null, indent)
        const all = paths(JSON.parse(text))
        const reading = readJson(text, { paths: all.map(([path]) => path) })
        for (const [path, found] of all) {
          const place = reading.place(path)
          const rest = text.slice(place.value)
          const written = JSON.stringify(found)
          assert.isTrue(
            typeof found === "object" && found !== null ? rest[0] === written[0] : rest.startsWith(written),
            text
          )
          const key = path.at(-1)
          if (typeof key === "string")
            assert.isTrue(text.slice(place.key).startsWith(JSON.stringify(key)), text)
        }
      })
    )
  })
  it("places what is not there at what should hold it", () => {
    const text = '{"a": [{"b": 1}]}'
    const reading = readJson(text, {
      paths: [
        ["a", 0, "c"],
        ["x", "y"]
      ]
    })
    assert.strictEqual(reading.place(["a", 0, "c"]).value, 7)
    assert.strictEqual(reading.place(["x", "y"]).value, 0)
  })
  it("counts lines and columns in one pass, for places in any order", () => {
    const text = "ab\n😀c\r\n\nd"
    const positions = positionsOf(text, [9, 0, 5, 3, 2, 5])
    assert.deepStrictEqual(
      [0, 2, 3, 5, 9].map((offset) => positions.get(offset)),
      [
        { line: 1, column: 1 },
        { line: 1, column: 3 },
        { line: 2, column: 1 },
        { line: 2, column: 2 },
        { line: 4, column: 1 }
      ]
    )
  })
})
