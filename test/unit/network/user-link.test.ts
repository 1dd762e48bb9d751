import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { MAX_SLOTS } from "../../../src/network/addresses.ts"
import { forwardOf } from "../../../src/network/user-link.ts"

const slots = fc.integer({ min: 0, max: MAX_SLOTS - 1 })
const ports = fc.oneof(fc.integer({ min: 1, max: 65_535 }), fc.integer({ min: 1, max: 1_100 }))

describe("where the host finds a guest's port on the user network", () => {
  it("is the port's own number, where QEMU may listen on that, and else a higher one", () => {
    assert.deepStrictEqual(forwardOf(5, 3000), { host: "127.201.0.22", port: 3000 })
    assert.deepStrictEqual(forwardOf(5, 1024), { host: "127.201.0.22", port: 1024 })
    assert.deepStrictEqual(forwardOf(5, 1023), { host: "127.201.0.21", port: 65_535 })
    assert.deepStrictEqual(forwardOf(5, 1), { host: "127.201.0.21", port: 64_513 })
  })

  it("is a port that needs no right, and that of no other guest or port", () => {
    fc.assert(
      fc.property(slots, ports, slots, ports, (slot, port, otherSlot, otherPort) => {
        const here = forwardOf(slot, port)
        assert.isAtLeast(here.port, 1024)
        assert.isAtMost(here.port, 65_535)
        if (slot !== otherSlot || port !== otherPort)
          assert.notDeepEqual(here, forwardOf(otherSlot, otherPort))
      })
    )
  })
})
