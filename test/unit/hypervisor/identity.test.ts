import { expect, it } from "@effect/vitest"
import * as fc from "fast-check"
import { describe } from "vitest"
import { DEFAULT_ID_RANGE, readIdRange, vmmIdentity } from "../../../src/hypervisor/identity.ts"
import { MAX_SLOTS } from "../../../src/network/addresses.ts"

describe("who a VMM runs as", () => {
  it("each slot has a user and a group of its own, from the base on", () => {
    expect(vmmIdentity(1_879_048_192, 0)).toEqual({ uid: 1_879_048_192, gid: 1_879_048_192 })
    expect(vmmIdentity(1_879_048_192, 7)).toEqual({ uid: 1_879_048_199, gid: 1_879_048_199 })
    for (const slot of [-1, 0.5, MAX_SLOTS])
      expect(() => vmmIdentity(1_879_048_192, slot)).toThrow(RangeError)
  })

  it("without a range of its own the host has the default one, which fits the kernel's ids", () => {
    expect(readIdRange("")).toEqual(DEFAULT_ID_RANGE)
    expect(readIdRange("someone:100000:65536\nnibrunnerx:5:5\n")).toEqual(DEFAULT_ID_RANGE)
    expect(DEFAULT_ID_RANGE.base).toBe(1_879_048_192)
    expect(DEFAULT_ID_RANGE.base + MAX_SLOTS).toBeLessThan(2 ** 31)
  })

  it("the range that subuid sets aside is taken, wherever it stands", () => {
    expect(readIdRange("someone:100000:65536\nnibrunner:700000:512\n")).toEqual({ base: 700_000, count: 512 })
    expect(readIdRange("nibrunner:700000:99999999")).toEqual({ base: 700_000, count: MAX_SLOTS })
  })

  it("a range that is no range, or holds users of the system, is refused with a reason", () => {
    expect(readIdRange("nibrunner:x:5")).toMatch(/is not NAME:FIRST:COUNT/u)
    expect(readIdRange("nibrunner:700000:5:6")).toMatch(/is not NAME:FIRST:COUNT/u)
    expect(readIdRange("nibrunner:700000")).toMatch(/is not NAME:FIRST:COUNT/u)
    expect(readIdRange("nibrunner:0:65536")).toMatch(/has to lie between 65536/u)
    expect(readIdRange("nibrunner:700000:0")).toMatch(/has to lie between/u)
    expect(readIdRange("nibrunner:4294967290:6")).toMatch(/has to lie between/u)
    expect(readIdRange("nibrunner:4294967290:5")).toEqual({ base: 4_294_967_290, count: 5 })
  })

  it("whatever the file holds, the ids are none that the system uses", () => {
    fc.assert(
      fc.property(fc.nat(), fc.nat(), (first, count) => {
        const range = readIdRange(`nibrunner:${first}:${count}\n`)
        if (typeof range === "string") return
        expect(range.base).toBeGreaterThanOrEqual(65_536)
        expect(range.count).toBeGreaterThan(0)
        expect(range.base + range.count).toBeLessThan(2 ** 32)
      })
    )
  })
})
