import { assert, describe, it } from "@effect/vitest"
import { Convergence, type Sight } from "../../../src/metrics/convergence.ts"

const sight = (at: number, changes: Partial<Sight> = {}): Sight => ({
  at,
  ask: "dep-1 running",
  desiredState: "running",
  converged: false,
  knownConverged: false,
  unhealthy: false,
  ...changes
})

const there = { converged: true, knownConverged: true } as const

/** An app that was brought to what is asked between 0 and 5 s. */
const converged = () => {
  const convergence = new Convergence()
  convergence.see(sight(0))
  convergence.see(sight(5_000, there))
  return convergence
}

describe("the way of an app to what is asked", () => {
  it("begins with the first sight of an app that is not there yet, and ends when it is", () => {
    const convergence = new Convergence()
    assert.deepStrictEqual(convergence.see(sight(1_000)), [])
    assert.strictEqual(convergence.since, 1_000)
    convergence.worked("layers", 1, 2_000)
    convergence.worked("boot", 2, 4_000)
    const [ended] = convergence.see(sight(7_000, there))
    assert.deepStrictEqual(
      [ended?.outcome, ended?.cause, [...(ended?.seconds ?? [])]],
      [
        "converged",
        "change",
        [
          ["layers", 1],
          ["boot", 2],
          ["ready", 3],
          ["total", 6]
        ]
      ]
    )
    assert.isUndefined(convergence.since)
    assert.strictEqual(convergence.last?.get("total"), 6)
  })

  it("adds up what attempts took that failed", () => {
    const convergence = new Convergence()
    convergence.see(sight(0))
    convergence.worked("boot", 2, 2_000)
    convergence.worked("boot", 3, 10_000)
    const [ended] = convergence.see(sight(11_000, there))
    assert.strictEqual(ended?.seconds.get("boot"), 5)
    assert.strictEqual(ended?.seconds.get("ready"), 1)
  })

  it("is not measured of an app that was there before this daemon looked", () => {
    const convergence = new Convergence()
    assert.deepStrictEqual(convergence.see(sight(0, there)), [])
    assert.isUndefined(convergence.since)
    assert.isUndefined(convergence.last)
  })

  it("is a restart of an app that an earlier daemon had brought there and that is there no more", () => {
    const convergence = new Convergence()
    convergence.see(sight(0, { knownConverged: true }))
    const [ended] = convergence.see(sight(3_000, there))
    assert.deepStrictEqual([ended?.cause, ended?.seconds.get("total")], ["restart", 3])
  })

  it("begins anew when the app is lost, and hides what the last one took meanwhile", () => {
    const convergence = converged()
    convergence.see(sight(60_000, { knownConverged: true }))
    assert.strictEqual(convergence.since, 60_000)
    assert.isUndefined(convergence.last)
    const [ended] = convergence.see(sight(62_000, there))
    assert.deepStrictEqual([ended?.cause, ended?.seconds.get("total")], ["restart", 2])
  })

  it("does not begin when the app is unhealthy, about which nothing is done", () => {
    const convergence = converged()
    convergence.see(sight(60_000, { knownConverged: true, unhealthy: true }))
    assert.isUndefined(convergence.since)
    assert.deepStrictEqual(convergence.see(sight(61_000, there)), [])
  })

  it("is superseded when the document asks for something else, which begins another", () => {
    const convergence = new Convergence()
    convergence.see(sight(0))
    const next = { ask: "dep-2 running" } as const
    const [ended, ...others] = convergence.see(sight(4_000, next))
    assert.deepStrictEqual([ended?.outcome, ended?.cause, others.length], ["superseded", "change", 0])
    assert.strictEqual(convergence.since, 4_000)
    const [last] = convergence.see(sight(6_000, { ...next, ...there }))
    assert.strictEqual(last?.seconds.get("total"), 2)
  })

  it("takes no time when what is asked now is there already", () => {
    const convergence = converged()
    const [ended] = convergence.see(
      sight(9_000, { ask: "dep-1 on-request", desiredState: "on-request", converged: true })
    )
    assert.deepStrictEqual([ended?.desiredState, ended?.seconds.get("total")], ["on-request", 0])
  })

  it("is given up when the document names the app no more", () => {
    const convergence = new Convergence()
    convergence.see(sight(0))
    assert.deepStrictEqual(
      convergence.superseded().map(({ outcome }) => outcome),
      ["superseded"]
    )
    assert.deepStrictEqual(convergence.superseded(), [])
  })
})
