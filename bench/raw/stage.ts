/**
 * What the bench `raw` runs in a network namespace of its own: a microVM that echoes behind a tap, another machine that
 * speaks with it, and in turns our rules and a forward by hand. Prints the seconds of each turn as a line of JSON.
 */
import { execFileSync } from "node:child_process"
import { Effect, Logger } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { HOST, makePeer } from "../../test/host/network/peer.ts"
import { bootTenant, hypervisorIn } from "../../test/host/network/tap-machine.ts"
import { openNetwork } from "../../test/host/network/tap-world.ts"
import { runtimeDirectory } from "../../test/host/qemu.ts"

const [rounds, mebibytes] = process.argv.slice(2).map(Number)
const SLOT = 1
const HOST_PORT = 21_009
const GUEST_PORT = 4000
const BYTES = (mebibytes ?? 1) * 2 ** 20

const nft = (text: string) => void execFileSync("nft", ["-f", "-"], { input: text })
/** A connection of one turn is not another's. */
const forgetFlows = () => void execFileSync("conntrack", ["-F"], { stdio: "ignore" })

const main = Effect.gen(function* () {
  execFileSync("ip", ["link", "set", "lo", "up"])
  const peer = yield* makePeer
  const directory = yield* runtimeDirectory
  const hypervisor = yield* hypervisorIn(directory)
  const first = yield* openNetwork()
  const { link } = yield* bootTenant(directory, hypervisor, first.network, "raw", SLOT, [
    "--raw-tcp",
    String(GUEST_PORT)
  ])
  yield* first.letGo

  const pump = Effect.flatMap(
    peer.tell("pump", { host: HOST, port: HOST_PORT, bytes: BYTES, waitMs: 120_000 }),
    ({ text, error }) =>
      text === undefined ? Effect.fail(new Error(error)) : Effect.succeed(Number(text) / 1000)
  )

  const ours = Effect.scoped(
    Effect.gen(function* () {
      const { network } = yield* openNetwork()
      yield* network.sweep([SLOT])
      yield* network.setForwards(SLOT, [{ hostPort: HOST_PORT, guestPort: GUEST_PORT }])
      return yield* pump
    })
  ).pipe(Effect.ensuring(Effect.sync(() => nft("delete table inet nibrunner"))))

  const byHand = Effect.acquireUseRelease(
    Effect.sync(() =>
      nft(`table ip by_hand {
        chain to_guest {
          type nat hook prerouting priority dstnat
          policy accept
          tcp dport ${HOST_PORT} dnat to ${link.guestAddress}:${GUEST_PORT}
        }
      }`)
    ),
    () => pump,
    () => Effect.sync(() => nft("delete table ip by_hand"))
  )

  nft("delete table inet nibrunner")
  const turns: Array<{ readonly ours: number; readonly byHand: number }> = []
  // The first turn warms both, and is not counted.
  for (let turn = 0; turn <= (rounds ?? 1); turn++) {
    const seconds = { ours: 0, byHand: 0 }
    // There and back: what the machine does meanwhile meets both alike.
    for (const who of turn % 2 === 0
      ? (["ours", "byHand", "byHand", "ours"] as const)
      : (["byHand", "ours", "ours", "byHand"] as const)) {
      forgetFlows()
      seconds[who] += yield* who === "ours" ? ours : byHand
    }
    if (turn > 0) turns.push(seconds)
  }
  process.stdout.write(`${JSON.stringify(turns)}\n`)
})

await Effect.runPromise(
  main.pipe(Effect.scoped, Effect.provide(layerVirtioSerialGuest), Effect.provide(Logger.layer([])))
)
process.exit(0)
