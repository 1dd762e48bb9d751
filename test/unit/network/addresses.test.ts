import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { MAX_SLOTS, slotAddresses } from "../../../src/network/addresses.ts"

const slots = fc.integer({ min: 0, max: MAX_SLOTS - 1 })
const number = (address: string) => address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0)

describe("a slot's addresses", () => {
  it("are those of the design for the first and the last slot", () => {
    assert.deepStrictEqual(slotAddresses(0), {
      network: "10.201.0.0/30",
      host: "10.201.0.1",
      guest: "10.201.0.2",
      loopback: "127.201.0.2",
      lowLoopback: "127.201.0.1",
      mac: "02:00:0a:c9:00:02"
    })
    assert.deepStrictEqual(slotAddresses(MAX_SLOTS - 1), {
      network: "10.201.255.252/30",
      host: "10.201.255.253",
      guest: "10.201.255.254",
      loopback: "127.201.255.254",
      lowLoopback: "127.201.255.253",
      mac: "02:00:0a:c9:ff:fe"
    })
  })

  it("are the two usable ones of a /30 in 10.201.0.0/16", () => {
    fc.assert(
      fc.property(slots, (slot) => {
        const { network, host, guest } = slotAddresses(slot)
        const base = number(network.slice(0, -"/30".length))
        assert.strictEqual(base, number("10.201.0.0") + 4 * slot)
        assert.deepStrictEqual([number(host), number(guest)], [base + 1, base + 2])
      })
    )
  })

  it("have a MAC that is local, of one station, and made of the guest's address", () => {
    fc.assert(
      fc.property(slots, (slot) => {
        const { mac, guest } = slotAddresses(slot)
        const bytes = mac.split(":").map((byte) => Number.parseInt(byte, 16))
        assert.deepStrictEqual(bytes, [2, 0, ...guest.split(".").map(Number)])
        assert.match(mac, /^[0-9a-f]{2}(:[0-9a-f]{2}){5}$/u)
      })
    )
  })

  it("are shared by no two slots", () => {
    fc.assert(
      fc.property(slots, slots, (one, other) => {
        fc.pre(one !== other)
        const values = [slotAddresses(one), slotAddresses(other)].flatMap((addresses) =>
          Object.values(addresses)
        )
        assert.strictEqual(new Set(values).size, values.length)
      })
    )
  })

  it("exist for no slot outside of the range", () => {
    for (const slot of [-1, MAX_SLOTS, 0.5, Number.NaN, Number.POSITIVE_INFINITY]) {
      assert.throws(() => slotAddresses(slot), RangeError)
    }
  })
})
