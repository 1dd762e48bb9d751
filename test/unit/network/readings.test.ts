import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { slotAddresses } from "../../../src/network/addresses.ts"
import { readCounters, readOpenFlows } from "../../../src/network/readings.ts"

const flow = (state: string, guest: string, timeout = "431999 ") =>
  `tcp      6 ${timeout}${state} src=203.0.113.2 dst=203.0.113.1 sport=40000 dport=21009 ` +
  `src=${guest} dst=203.0.113.2 sport=4000 dport=40000 [ASSURED] mark=0 use=1`

describe("what nft prints of counters", () => {
  it("is read by slot, and what is not of ours is left out", () => {
    const counter = (name: string, packets: number, bytes: number) => ({
      counter: { family: "inet", name, table: "nibrunner", handle: 3, packets, bytes }
    })
    const text = JSON.stringify({
      nftables: [
        { metainfo: { version: "1.0.6" } },
        counter("received_7", 2, 120),
        counter("arrivals_300", 1, 60),
        counter("somebody", 9, 9)
      ]
    })
    assert.deepStrictEqual(readCounters(text), [
      { slot: 7, counter: "received", packets: 2, bytes: 120 },
      { slot: 300, counter: "arrivals", packets: 1, bytes: 60 }
    ])
  })

  it("is told from anything else", () => {
    fc.assert(fc.property(fc.string(), (text) => void readCounters(text)))
    for (const text of ["", "{}", "[]", '{"nftables":[{"counter":{"name":1}}]}']) {
      assert.isUndefined(readCounters(text), text)
    }
  })
})

describe("what conntrack prints of flows", () => {
  it("gives the connections that are open to each guest", () => {
    const [one, two] = [slotAddresses(1).guest, slotAddresses(2).guest]
    const text = [
      flow("ESTABLISHED", one),
      flow("ESTABLISHED", one),
      flow("CLOSE_WAIT", one),
      flow("SYN_RECV", two),
      flow("TIME_WAIT", two),
      flow("CLOSE", two),
      flow("SYN_SENT", two),
      flow("ESTABLISHED", "203.0.113.9"),
      flow("ESTABLISHED", two, ""),
      ""
    ].join("\n")
    assert.deepStrictEqual(
      [...readOpenFlows(text)],
      [
        [1, 3],
        [2, 2]
      ]
    )
  })

  it("takes the guest for who answers, not for who asks", () => {
    const own = `tcp      6 100 ESTABLISHED src=${slotAddresses(1).guest} dst=203.0.113.2 sport=1 dport=2 src=203.0.113.2 dst=203.0.113.1 sport=2 dport=1 [ASSURED] mark=0 use=1`
    assert.strictEqual(readOpenFlows(own).size, 0)
  })

  it("is read without an error, whatever it is", () => {
    fc.assert(fc.property(fc.string(), (text) => void readOpenFlows(text)))
    fc.assert(
      fc.property(fc.string(), (text) =>
        assert.strictEqual(readOpenFlows(`udp ${text.replaceAll("\n", "")}`).size, 0)
      )
    )
  })
})
