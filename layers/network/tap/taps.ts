/** The taps themselves: interfaces of the host's kernel, one for each slot. They outlive the daemon. */
import * as fs from "node:fs"
import { Effect } from "effect"
import { slotAddresses } from "../../../src/network/addresses.ts"
import { gatewayMac, slotOfTap, tapName } from "../../../src/network/tap-link.ts"
import { onFile } from "../../files/problem.ts"
import { type CommandFailed, runCommand } from "./command.ts"

/** What the kernel does with what comes from a tap, before any rule is asked. */
const settings: ReadonlyArray<readonly [family: "ipv4" | "ipv6", name: string, value: string]> = [
  // Guests have no IPv6: what they send of it goes nowhere.
  ["ipv6", "disable_ipv6", "1"],
  // The host answers ARP for its end of the link, and for none of its other addresses.
  ["ipv4", "arp_ignore", "2"],
  ["ipv4", "rp_filter", "1"],
  ["ipv4", "proxy_arp", "0"],
  ["ipv4", "accept_redirects", "0"],
  ["ipv4", "accept_source_route", "0"],
  ["ipv4", "forwarding", "1"]
]

const set = (ifname: string, [family, name, value]: (typeof settings)[number]) => {
  const directory = `/proc/sys/net/${family}/conf/${ifname}`
  const path = `${directory}/${name}`
  return onFile(path, async () => {
    // A kernel without IPv6 has no such directory, and nothing to be switched off.
    if (family === "ipv6" && !fs.existsSync("/proc/sys/net/ipv6")) return
    fs.writeFileSync(path, value)
  })
}

/** Not /sys, which may show another network namespace than the one that the daemon is in. */
const interfaces = (): ReadonlyArray<string> =>
  fs
    .readFileSync("/proc/net/dev", "utf8")
    .split("\n")
    .flatMap((line) => /^\s*([^\s:]+):/u.exec(line)?.[1] ?? [])

/** The slots that have a tap now. */
export const listTaps: Effect.Effect<ReadonlyArray<number>> = Effect.sync(() =>
  interfaces().flatMap((name) => slotOfTap(name) ?? [])
)

export const hasTap = (slot: number): boolean => interfaces().includes(tapName(slot))

/**
 * Makes the slot's tap as it has to be, whether it is there or not; one that a VMM has open is kept open. `owner`: the user
 * who may open it beside root.
 */
export const makeTap = Effect.fnUntraced(function* (slot: number, owner: number) {
  const name = tapName(slot)
  const { host, guest, mac } = slotAddresses(slot)
  yield* runCommand("ip", ["tuntap", "add", "dev", name, "mode", "tap", "user", String(owner)]).pipe(
    Effect.catchIf(
      // Open: it is a running microVM's, and was made before.
      (error) => /busy/u.test(error.said) && hasTap(slot),
      () => Effect.succeed("")
    )
  )
  // Before it is up, so that no frame meets the kernel's own settings.
  yield* Effect.forEach(settings, (setting) => set(name, setting), { discard: true })
  yield* runCommand(
    "ip",
    ["-batch", "-"],
    [
      `link set dev ${name} address ${gatewayMac(slot)}`,
      `address replace ${host}/30 dev ${name}`,
      `link set dev ${name} up`,
      // The guest's own ARP is never asked, so it cannot lie.
      `neighbour replace ${guest} lladdr ${mac} dev ${name} nud permanent`,
      ""
    ].join("\n")
  )
})

/** Removes the slot's tap; no error when there is none. */
export const deleteTap = (slot: number) =>
  runCommand("ip", ["link", "delete", "dev", tapName(slot)]).pipe(
    Effect.asVoid,
    Effect.catchIf(
      (_: CommandFailed) => !hasTap(slot),
      () => Effect.void
    )
  )
