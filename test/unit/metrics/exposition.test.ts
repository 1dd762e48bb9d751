import { spawnSync } from "node:child_process"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import {
  counter,
  type Family,
  gauge,
  histogram,
  labelText,
  renderFamily
} from "../../../src/metrics/exposition.ts"
import { bucketOf, Counter, Histogram } from "../../../src/metrics/instruments.ts"
import { readMetrics, valueOf } from "../../support/prometheus.ts"

const text = (family: Family<undefined>): string => [...renderFamily(family, [undefined])].join("")

describe("a family as text", () => {
  it("is there with HELP and TYPE although it has no sample", () => {
    const empty = gauge<undefined>("a_gauge", 'A "gauge" of\nC:\\dir.', {}, () => undefined)
    assert.strictEqual(text(empty), '# HELP a_gauge A "gauge" of\\nC:\\\\dir.\n# TYPE a_gauge gauge\n')
  })

  it("holds any label value and any number so that a reader gets them back", () => {
    const value = fc.oneof(
      fc.string(),
      fc.string({ unit: "binary" }),
      fc.constantFrom('"', "\\", "\n", "\\n", 'a"b\\')
    )
    const number = fc.oneof(fc.double({ noNaN: true }), fc.integer())
    fc.assert(
      fc.property(value, number, (label, sample) => {
        const family = gauge<undefined>("a_gauge", "A gauge.", {}, (_, put) =>
          put(labelText({ app: label }), sample)
        )
        const page = readMetrics(text(family))
        assert.strictEqual(valueOf(page, "a_gauge", { app: label }), sample === 0 ? 0 : sample)
      })
    )
  })

  it("is read by promtool whatever its label values are", () => {
    const values = ['"', "\\", "\n", "\\n", "}", "{", ",", "=", " ", "é", "\u{1f600}", 'x"} 1\nforged 1']
    const family = counter<undefined>("some_total", "Some.", {}, (_, put) => {
      for (const app of values) put(labelText({ app }), 1)
    })
    const { status, stderr, stdout } = spawnSync("promtool", ["check", "metrics"], {
      input: text(family),
      encoding: "utf8"
    })
    assert.deepStrictEqual([status, stdout, stderr], [0, "", ""])
  })
})

describe("a histogram", () => {
  it("counts a value in the first bucket whose end it does not pass", () => {
    assert.deepStrictEqual(
      [0, 1, 1.5, 2, 2.5].map((value) => bucketOf([1, 2], value)),
      [0, 0, 1, 1, 2]
    )
  })

  it("is buckets that only rise, up to the count, and the sum of what was seen", () => {
    const bounds = [0.1, 1, 10]
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0, max: 100, noNaN: true }), { minLength: 1 }), (values) => {
        const observed = new Histogram(bounds)
        for (const value of values) observed.observe('way="x"', value)
        const family = histogram<undefined>("some_seconds", "Some.", { way: ["x"] }, bounds, () => observed)
        const page = readMetrics(text(family))
        const below = (bound: number) => values.filter((value) => value <= bound).length
        for (const bound of bounds) {
          assert.strictEqual(
            valueOf(page, "some_seconds_bucket", { way: "x", le: String(bound) }),
            below(bound)
          )
        }
        assert.strictEqual(valueOf(page, "some_seconds_bucket", { way: "x", le: "+Inf" }), values.length)
        assert.strictEqual(valueOf(page, "some_seconds_count", { way: "x" }), values.length)
        assert.strictEqual(
          valueOf(page, "some_seconds_sum", { way: "x" }),
          values.reduce((sum, value) => sum + value, 0)
        )
      })
    )
  })
})

describe("a counter", () => {
  it("begins at 0 for the labels that are known before anything happens", () => {
    const counted = new Counter(['reason="a"'])
    counted.add('reason="b"')
    counted.add('reason="b"', 2)
    assert.deepStrictEqual(
      [...counted.totals],
      [
        ['reason="a"', 0],
        ['reason="b"', 3]
      ]
    )
  })
})
