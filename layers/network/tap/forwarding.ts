/** The kernel's leave to pass packets on. */
import * as fs from "node:fs"
import { Effect } from "effect"
import { CommandFailed } from "./command.ts"

const SETTING = "/proc/sys/net/ipv4/ip_forward"

/** Sees to it that the host forwards IPv4: without it nothing passes between guests and the internet. */
export const allowForwarding: Effect.Effect<void, CommandFailed> = Effect.try({
  try: () => {
    if (fs.readFileSync(SETTING, "utf8").trim() !== "1") fs.writeFileSync(SETTING, "1")
  },
  catch: (error) =>
    new CommandFailed({
      reason: `net.ipv4.ip_forward is not 1 and could not be set (${error instanceof Error ? error.message : error}): set it with sysctl`,
      said: ""
    })
})
