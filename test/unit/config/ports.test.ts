import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import {
  httpPortOfSlot,
  MAX_RAW_PORTS,
  MAX_SLOTS,
  rawPortOfSlot,
  slotPortRange
} from "../../../src/config/ports.ts"

describe("the ports of slots", () => {
  it("are 8 for each from 21000 up, for 5567 slots at most", () => {
    assert.strictEqual(MAX_SLOTS, 5567)
    assert.strictEqual(httpPortOfSlot(0), 21000)
    assert.strictEqual(httpPortOfSlot(3), 21024)
    assert.strictEqual(rawPortOfSlot(3, 0), 21025)
    assert.strictEqual(rawPortOfSlot(3, MAX_RAW_PORTS - 1), 21031)
    assert.deepStrictEqual(slotPortRange(1), { first: 21000, last: 21007 })
    assert.deepStrictEqual(slotPortRange(MAX_SLOTS), { first: 21000, last: 65535 })
  })
  it("belong to one slot each, and lie in the range of the host", () => {
    const slots = fc.integer({ min: 1, max: MAX_SLOTS })
    fc.assert(
      fc.property(slots, fc.nat(), fc.nat(), (maxApps, a, b) => {
        const [one, other] = [a % maxApps, b % maxApps]
        const portsOf = (slot: number) => [
          httpPortOfSlot(slot),
          ...Array.from({ length: MAX_RAW_PORTS }, (_, position) => rawPortOfSlot(slot, position))
        ]
        const { first, last } = slotPortRange(maxApps)
        for (const port of portsOf(one)) assert.isTrue(port >= first && port <= last)
        if (one !== other) assert.isEmpty(portsOf(one).filter((port) => portsOf(other).includes(port)))
      })
    )
  })
})
