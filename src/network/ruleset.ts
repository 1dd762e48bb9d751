/**
 * The nftables ruleset that keeps guests apart, whole, as text for `nft -f`. It replaces its own table and touches no
 * other. What is not named in it is not let through: a tap that belongs to no slot here sends nothing.
 */
import type { PortForward } from "../services/Network.ts"
import { slotAddresses } from "./addresses.ts"
import { NEVER_REACHED, plainRange } from "./ranges.ts"
import { TAP_PREFIX, tapName } from "./tap-link.ts"

/** The table, of the family `inet`. */
export const TABLE = "nibrunner"

/** The chain that no packet passes: its one rule names the load. */
export const STAMP_CHAIN = "stamp"

/** How long a connection over a forward is kept without a packet, in seconds. Source: RFC 5382, REQ-5. */
const QUIET_CONNECTION_SECONDS = 7440

/**
 * How many flows a guest may have open that it began itself. The kernel keeps all flows of the machine in one table, which
 * one guest could fill.
 */
const FLOWS_PER_GUEST = 1024

/** What is counted of each slot. */
export const COUNTERS = ["received", "sent", "arrivals"] as const
export type CounterName = (typeof COUNTERS)[number]

export interface RulesetSlot {
  readonly slot: number
  readonly forwards: ReadonlyArray<PortForward>
}

export interface RulesetInput {
  /** Tells this load from others: letters, digits and `-`. */
  readonly stamp: string
  /** The slots that are attached, each once. */
  readonly slots: ReadonlyArray<RulesetSlot>
  /** IPv4 ranges that the configuration denies, beside those that always are. */
  readonly denied: ReadonlyArray<string>
  /** Where raw ports are reached: `any` address of the host, one IPv4 address, or `none` by the kernel. */
  readonly forwardedOn: "any" | "none" | { readonly address: string }
}

/** A set or map with these elements; nft takes no empty list. */
const elements = (items: ReadonlyArray<string>) =>
  items.length === 0 ? [] : [`elements = { ${items.join(", ")} }`]

const block = (head: string, lines: ReadonlyArray<string>) => [
  `  ${head} {`,
  ...lines.map((line) => `    ${line}`),
  "  }"
]

const counterName = (counter: CounterName, slot: number) => `${counter}_${slot}`

/** The counter and the slot that a name of this ruleset stands for. */
export const readCounterName = (
  name: string
): { readonly counter: CounterName; readonly slot: number } | undefined => {
  const [, counter, slot] = /^([a-z]+)_(\d{1,6})$/u.exec(name) ?? []
  const known = COUNTERS.find((one) => one === counter)
  return known === undefined ? undefined : { counter: known, slot: Number(slot) }
}

const guests = `"${TAP_PREFIX}*"`
const fromGuest = `iifname ${guests}`
const toGuest = `oifname ${guests}`

/** The whole network of all slots. */
const GUEST_NETWORK = "10.201.0.0/16"

const destination = (on: RulesetInput["forwardedOn"]): ReadonlyArray<string> => {
  if (on === "none") return []
  const here = on === "any" ? "fib daddr type local" : `ip daddr ${on.address}`
  return [
    // What is in the middle of a connection is not a new one: it meets the host, which resets it.
    `meta nfproto ipv4 ${here} tcp flags & (fin|syn|rst|ack) == syn dnat ip to tcp dport map @tcp_forwards`,
    `meta nfproto ipv4 ${here} dnat ip to udp dport map @udp_forwards`
  ]
}

/** Renders the ruleset. The same input gives the same text. */
export const renderRuleset = ({ stamp, slots, denied, forwardedOn }: RulesetInput): string => {
  const addresses = slots.map(({ slot, forwards }) => ({ slot, forwards, ...slotAddresses(slot) }))
  const forwards = addresses.flatMap((one) =>
    one.forwards.map(({ hostPort, guestPort }) => `${hostPort} : ${one.guest} . ${guestPort}`)
  )
  const counters = (counter: CounterName) =>
    block(`map ${counter}`, [
      "type ipv4_addr : counter",
      ...elements(addresses.map(({ slot, guest }) => `${guest} : "${counterName(counter, slot)}"`))
    ])
  return [
    // Declared so that it can be deleted whether it was there or not: all in one transaction.
    `table inet ${TABLE}`,
    `delete table inet ${TABLE}`,
    `table inet ${TABLE} {`,
    ...block("set denied", [
      "type ipv4_addr",
      "flags interval",
      "auto-merge",
      ...elements([...NEVER_REACHED, ...denied].map(plainRange))
    ]),
    ...block("set senders", [
      "type ifname . ether_addr . ipv4_addr",
      ...elements(addresses.map(({ slot, mac, guest }) => `"${tapName(slot)}" . ${mac} . ${guest}`))
    ]),
    ...block("set receivers", [
      "type ifname . ipv4_addr",
      ...elements(addresses.map(({ slot, guest }) => `"${tapName(slot)}" . ${guest}`))
    ]),
    // Filled by the rule that counts in it.
    ...block("set openers", ["type ipv4_addr", "size 65536", "flags dynamic"]),
    ...block("map tcp_forwards", ["type inet_service : ipv4_addr . inet_service", ...elements(forwards)]),
    ...block("map udp_forwards", ["type inet_service : ipv4_addr . inet_service", ...elements(forwards)]),
    ...addresses.flatMap(({ slot }) =>
      COUNTERS.map((counter) => `  counter ${counterName(counter, slot)} { packets 0 bytes 0 }`)
    ),
    ...COUNTERS.flatMap(counters),
    ...block("ct timeout forwarded", [
      "protocol tcp",
      "l3proto ip",
      `policy = { established : ${QUIET_CONNECTION_SECONDS} }`
    ]),

    // Whoever tries is told at once.
    ...block("chain refuse", [
      "meta l4proto tcp reject with tcp reset",
      "reject with icmpx admin-prohibited"
    ]),

    ...block("chain spoofed", [
      "type filter hook prerouting priority raw",
      "policy accept",
      // Not rejected: the answer would go to whom the sender pretends to be.
      `${fromGuest} meta nfproto ipv4 iifname . ether saddr . ip saddr != @senders drop`
    ]),

    ...block("chain forward", [
      "type filter hook forward priority filter",
      "policy accept",
      // What is for a guest whose tap is gone does not leave the host.
      `ip daddr ${GUEST_NETWORK} oifname != ${guests} goto refuse`,
      `${fromGuest} jump from_guest`,
      `${toGuest} jump to_guest`
    ]),
    ...block("chain from_guest", [
      "ct direction reply ct state established,related accept",
      // Before anything that is let through because it is open: a range that is denied now is cut now.
      "ip daddr @denied goto refuse",
      `${toGuest} goto refuse`,
      // Guests have no IPv6.
      "meta nfproto ipv6 goto refuse",
      "ct state invalid drop",
      `ct state new add @openers { ip saddr ct count over ${FLOWS_PER_GUEST} } goto refuse`
    ]),
    ...block("chain to_guest", [
      "oifname . ip daddr != @receivers goto refuse",
      "ct direction reply ct state established,related accept",
      'ct status dnat ct state new ct timeout set "forwarded"',
      "ct status dnat ct state new,established,related accept",
      // Nobody outside reaches a guest by its own address.
      "goto refuse"
    ]),

    ...block("chain input", [
      "type filter hook input priority filter",
      "policy accept",
      `${fromGuest} jump to_host`
    ]),
    // Answers to what the host has opened, and nothing else, whatever the port and the address.
    ...block("chain to_host", ["ct direction reply ct state established,related accept", "goto refuse"]),

    ...block("chain prerouting", [
      "type nat hook prerouting priority dstnat",
      "policy accept",
      `${fromGuest} return`,
      ...destination(forwardedOn)
    ]),
    ...block("chain postrouting", [
      "type nat hook postrouting priority srcnat",
      "policy accept",
      `ip saddr ${GUEST_NETWORK} oifname != ${guests} masquerade`
    ]),

    ...block("chain count_forward", [
      "type filter hook forward priority filter + 10",
      "policy accept",
      `${fromGuest} counter name ip saddr map @sent`,
      `${toGuest} counter name ip daddr map @received`,
      `${toGuest} ct status dnat ct direction original counter name ip daddr map @arrivals`
    ]),
    ...block("chain count_input", [
      "type filter hook input priority filter + 10",
      "policy accept",
      `${fromGuest} counter name ip saddr map @sent`
    ]),
    ...block("chain count_output", [
      "type filter hook output priority filter + 10",
      "policy accept",
      `${toGuest} counter name ip daddr map @received`
    ]),

    // The last rule: who listens to changes of the ruleset and hears it knows that a load is over, and which.
    ...block(`chain ${STAMP_CHAIN}`, [`return comment "${stamp}"`]),
    "}",
    ""
  ].join("\n")
}
