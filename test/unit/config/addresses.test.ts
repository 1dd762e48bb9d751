import { isIPv4, isIPv6 } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import {
  IP_ADDRESS,
  IPV4_ADDRESS,
  IPV4_RANGE,
  IPV6_ADDRESS,
  IPV6_RANGE,
  isIpAddress,
  rangeProblem
} from "../../../src/config/addresses.ts"

const nearlyV4 = fc
  .array(fc.oneof(fc.nat({ max: 300 }).map(String), fc.constantFrom("", "01", "x", "1.")), {
    minLength: 3,
    maxLength: 5
  })
  .map((parts) => parts.join("."))

const nearlyV6 = fc
  .array(
    fc.oneof(fc.stringMatching(/^[0-9a-fA-F]{1,4}$/u), fc.constantFrom("", "", "12345", "g", "1.2.3.4", "0")),
    { minLength: 1, maxLength: 10 }
  )
  .map((parts) => parts.join(":"))

const addresses = fc.oneof(fc.ipV4(), fc.ipV6(), nearlyV4, nearlyV6, fc.string())

describe("IP addresses and ranges", () => {
  it("are taken and refused as the platform takes and refuses them", () => {
    fc.assert(
      fc.property(addresses, (text) => {
        assert.strictEqual(IPV4_ADDRESS.test(text), isIPv4(text), text)
        // An address with a zone names an interface of one machine, which no range does.
        assert.strictEqual(IPV6_ADDRESS.test(text), isIPv6(text) && !text.includes("%"), text)
        assert.strictEqual(isIpAddress(text), IP_ADDRESS.test(text), text)
        assert.strictEqual(IP_ADDRESS.test(text), IPV4_ADDRESS.test(text) || IPV6_ADDRESS.test(text))
      }),
      { numRuns: 5000 }
    )
  })
  it("have a reason for a refusal exactly when the pattern refuses", () => {
    const lengths = fc.oneof(
      fc.integer({ min: -1, max: 140 }).map(String),
      fc.constantFrom("", "08", "x", "1/2")
    )
    fc.assert(
      fc.property(addresses, lengths, fc.boolean(), (address, length, hasLength) => {
        const text = hasLength ? `${address}/${length}` : address
        assert.strictEqual(rangeProblem(text, 4) === undefined, IPV4_RANGE.test(text), text)
        assert.strictEqual(rangeProblem(text, 6) === undefined, IPV6_RANGE.test(text), text)
      }),
      { numRuns: 5000 }
    )
  })
})
