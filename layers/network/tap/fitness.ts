/** Whether this machine lets a daemon make taps and rules. */
import { accessSync, constants } from "node:fs"
import { Effect } from "effect"
import { renderRuleset } from "../../../src/network/ruleset.ts"
import { CommandFailed, runCommand } from "./command.ts"

const TUN = "/dev/net/tun"

/** Fails with the first thing that is missing, as a clause. Changes nothing. */
export const checkFitness = Effect.gen(function* () {
  if (process.getuid?.() !== 0) {
    return yield* new CommandFailed({ reason: "only root makes taps and rules", said: "" })
  }
  yield* Effect.try({
    try: () => accessSync(TUN, constants.R_OK | constants.W_OK),
    catch: () =>
      new CommandFailed({ reason: `${TUN} is not there: the kernel's module tun is missing`, said: "" })
  })
  yield* runCommand("ip", ["-V"])
  yield* runCommand("conntrack", ["--version"])
  // A dry run asks the kernel for everything that the rules need.
  const slots = [{ slot: 0, forwards: [{ hostPort: 21_001, guestPort: 1 }] }]
  yield* runCommand(
    "nft",
    ["-c", "-f", "-"],
    renderRuleset({ stamp: "check", slots, denied: [], forwardedOn: "any" })
  )
}).pipe(Effect.asVoid)
