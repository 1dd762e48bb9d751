/** Where the kernel carries raw ports. */
import type { RulesetInput } from "./ruleset.ts"

/** On the addresses that the proxy listens on for them, of IPv4: what comes over IPv6 is left to the proxy. */
export const forwardedOn = (listenAddress: string | undefined): RulesetInput["forwardedOn"] => {
  if (listenAddress === undefined) return "none"
  if (listenAddress === "0.0.0.0") return "any"
  if (!listenAddress.includes(":")) return { address: listenAddress }
  // Who listens on all of IPv6 listens on all of IPv4 too.
  return /^[0:]+$/u.test(listenAddress) ? "any" : "none"
}
