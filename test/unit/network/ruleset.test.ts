import { execFileSync } from "node:child_process"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { rawPortOfSlot } from "../../../src/config/ports.ts"
import { MAX_SLOTS, slotAddresses, slotOfGuest } from "../../../src/network/addresses.ts"
import { forwardedOn } from "../../../src/network/forwarded-on.ts"
import { inRange, NEVER_REACHED, plainRange } from "../../../src/network/ranges.ts"
import { COUNTERS, type RulesetInput, readCounterName, renderRuleset } from "../../../src/network/ruleset.ts"
import { gatewayMac, slotOfTap, tapName } from "../../../src/network/tap-link.ts"

const slot = fc.integer({ min: 0, max: 5566 })
const port = fc.integer({ min: 1, max: 65_535 })
const address = fc
  .tuple(...[0, 1, 2, 3].map(() => fc.integer({ min: 0, max: 255 })))
  .map((octets) => octets.join("."))
const range = fc
  .tuple(address, fc.integer({ min: 0, max: 32 }))
  .map(([first, length]) => `${first}/${length}`)

const slots = fc.uniqueArray(slot, { maxLength: 12 }).chain((numbers) =>
  fc.tuple(
    ...numbers.map((number) =>
      fc.array(port, { maxLength: 7 }).map((guestPorts) => ({
        slot: number,
        forwards: guestPorts.map((guestPort, position) => ({
          hostPort: rawPortOfSlot(number, position),
          guestPort
        }))
      }))
    )
  )
)

const input: fc.Arbitrary<RulesetInput> = fc.record({
  stamp: fc.stringMatching(/^[0-9a-f]{1,12}-\d{1,6}$/u),
  slots,
  denied: fc.array(range, { maxLength: 8 }),
  forwardedOn: fc.oneof(
    fc.constantFrom("any" as const, "none" as const),
    address.map((one) => ({ address: one }))
  )
})

/** The elements of a set or map of the text. */
const elementsOf = (text: string, name: string): ReadonlyArray<string> => {
  const [, list] =
    new RegExp(`  (?:set|map) ${name} \\{[^}]*?elements = \\{ ([^}]*) \\}`, "u").exec(text) ?? []
  return list?.split(", ") ?? []
}

/** The rules of a chain of the text, but for its head. */
const rulesOf = (text: string, name: string): ReadonlyArray<string> => {
  const [, body = ""] = new RegExp(`  chain ${name} \\{\\n([^]*?)\\n  \\}`, "u").exec(text) ?? []
  return body
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => !/^(?:type|policy) /u.test(line))
}

describe("the ruleset", () => {
  it("is the same text for the same input, and replaces its own table in one go", () => {
    fc.assert(
      fc.property(input, (one) => {
        const text = renderRuleset(one)
        assert.strictEqual(renderRuleset(structuredClone(one)), text)
        assert.match(text, /^table inet nibrunner\ndelete table inet nibrunner\ntable inet nibrunner \{\n/u)
        assert.strictEqual(text.match(/^table /gmu)?.length, 2)
      })
    )
  })

  it("lets each attached slot send from its own tap, MAC and address, and nobody else", () => {
    fc.assert(
      fc.property(input, (one) => {
        const senders = one.slots.map(({ slot: number }) => {
          const { mac, guest } = slotAddresses(number)
          return `"nbr${number}" . ${mac} . ${guest}`
        })
        assert.deepStrictEqual(elementsOf(renderRuleset(one), "senders"), senders)
        assert.include(rulesOf(renderRuleset(one), "spoofed").join("\n"), "!= @senders drop")
      })
    )
  })

  it("forwards the ports that it is given, TCP and UDP, where the host listens for them", () => {
    fc.assert(
      fc.property(input, (one) => {
        const text = renderRuleset(one)
        const wanted = one.slots.flatMap(({ slot: number, forwards }) =>
          forwards.map(
            ({ hostPort, guestPort }) => `${hostPort} : ${slotAddresses(number).guest} . ${guestPort}`
          )
        )
        assert.deepStrictEqual(elementsOf(text, "tcp_forwards"), wanted)
        assert.deepStrictEqual(elementsOf(text, "udp_forwards"), wanted)
        const rules = rulesOf(text, "prerouting").slice(1)
        const where =
          one.forwardedOn === "any"
            ? "fib daddr type local"
            : one.forwardedOn === "none"
              ? undefined
              : `ip daddr ${one.forwardedOn.address} `
        if (where === undefined) assert.deepStrictEqual(rules, [])
        else assert.isTrue(rules.length === 2 && rules.every((rule) => rule.includes(where)))
      })
    )
  })

  it("denies every address of the ranges that are configured and of those that always are", () => {
    fc.assert(
      fc.property(input, address, (one, candidate) => {
        const denied = elementsOf(renderRuleset(one), "denied")
        assert.strictEqual(
          denied.some((element) => inRange(candidate, element)),
          [...NEVER_REACHED, ...one.denied].some((element) => inRange(candidate, element))
        )
      })
    )
    for (const never of ["169.254.169.254", "10.201.0.2", "127.0.0.1", "192.168.1.1", "100.100.100.100"]) {
      assert.isTrue(
        NEVER_REACHED.some((element) => inRange(never, element)),
        never
      )
    }
    assert.isFalse(NEVER_REACHED.some((element) => inRange("203.0.113.2", element)))
  })

  it("asks what is denied before anything is let through that a guest has opened", () => {
    const rules = rulesOf(
      renderRuleset({ stamp: "a", slots: [], denied: [], forwardedOn: "any" }),
      "from_guest"
    )
    assert.deepStrictEqual(rules.slice(0, 2), [
      "ct direction reply ct state established,related accept",
      "ip daddr @denied goto refuse"
    ])
  })

  it("refuses with an answer, and drops only what pretends to come from another or belongs to nothing", () => {
    const text = renderRuleset({ stamp: "a", slots: [], denied: [], forwardedOn: "any" })
    assert.deepStrictEqual(rulesOf(text, "refuse"), [
      "meta l4proto tcp reject with tcp reset",
      "reject with icmpx admin-prohibited"
    ])
    const drops = text.split("\n").filter((line) => line.includes("drop"))
    assert.strictEqual(drops.length, 2)
    assert.include(drops[0], "@senders")
    assert.include(drops[1], "ct state invalid")
  })

  it("ends with its stamp, the rule by which a load is known to be over", () => {
    fc.assert(
      fc.property(input, (one) => {
        const rules = renderRuleset(one)
          .split("\n")
          .filter((line) => /^ {4}\S/u.test(line))
        assert.strictEqual(rules.at(-1)?.trim(), `return comment "${one.stamp}"`)
      })
    )
  })

  it.skipIf(process.getuid?.() !== 0)("is taken by nft, whatever is in it", () => {
    fc.assert(
      fc.property(input, (one) => {
        // a namespace of its own, and a dry run in it: nothing is changed anywhere
        execFileSync("unshare", ["--net", "nft", "-c", "-f", "-"], { input: renderRuleset(one) })
      }),
      { numRuns: 25 }
    )
  })

  it("names counters so that they can be told apart again", () => {
    fc.assert(
      fc.property(slot, fc.constantFrom(...COUNTERS), (number, counter) => {
        assert.deepStrictEqual(readCounterName(`${counter}_${number}`), { counter, slot: number })
      })
    )
    for (const other of ["received", "received_", "lost_1", "received_1x", "_1"]) {
      assert.isUndefined(readCounterName(other))
    }
  })
})

describe("raw ports", () => {
  it("are carried by the kernel on the addresses that the proxy listens on, of IPv4", () => {
    assert.strictEqual(forwardedOn(undefined), "none")
    assert.strictEqual(forwardedOn("0.0.0.0"), "any")
    assert.strictEqual(forwardedOn("::"), "any")
    assert.strictEqual(forwardedOn("0:0:0:0:0:0:0:0"), "any")
    assert.strictEqual(forwardedOn("::1"), "none")
    assert.strictEqual(forwardedOn("2001:db8::1"), "none")
    assert.deepStrictEqual(forwardedOn("203.0.113.1"), { address: "203.0.113.1" })
  })
})

describe("ranges", () => {
  it("have one plain form, which holds the same addresses", () => {
    fc.assert(
      fc.property(range, address, (one, candidate) => {
        const plain = plainRange(one)
        assert.strictEqual(plainRange(plain), plain)
        assert.strictEqual(inRange(candidate, plain), inRange(candidate, one))
        assert.isTrue(inRange(one.split("/")[0] ?? "", plain))
      })
    )
    assert.strictEqual(plainRange("10.1.2.3/8"), "10.0.0.0/8")
    assert.strictEqual(plainRange("255.255.255.255/0"), "0.0.0.0/0")
  })
})

describe("names and addresses of taps", () => {
  it("lead back to their slot, and those of nothing else do", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: MAX_SLOTS - 1 }), (number) => {
        assert.strictEqual(slotOfTap(tapName(number)), number)
        assert.strictEqual(slotOfGuest(slotAddresses(number).guest), number)
        assert.isUndefined(slotOfGuest(slotAddresses(number).host))
        assert.notStrictEqual(gatewayMac(number), slotAddresses(number).mac)
        assert.isAtMost(tapName(number).length, 15)
      })
    )
    for (const name of ["nbr", "nbr01", "nbr-1", "nbr16384", "nbr1x", "eth0", "xnbr1"]) {
      assert.isUndefined(slotOfTap(name), name)
    }
    for (const other of [
      "10.202.0.2",
      "10.201.0.256",
      "10.201.0.0",
      "10.201.0.3",
      "127.201.0.2",
      "::1",
      ""
    ]) {
      assert.isUndefined(slotOfGuest(other), other)
    }
  })
})
