/** A hostile guest without a microVM: whatever frames it likes, over the tap of its slot. */
import { execFileSync } from "node:child_process"
import { join } from "node:path"
import { Effect, Option, Queue } from "effect"
import { slotAddresses } from "../../../src/network/addresses.ts"
import { gatewayMac, tapName } from "../../../src/network/tap-link.ts"
import type { Network } from "../../../src/services/Network.ts"
import { lineChild } from "./child.ts"
import { type Datagram, type Got, readFrame, udpFrame } from "./frames.ts"
import { makePeer } from "./peer.ts"
import { cleared, openNetwork } from "./tap-world.ts"

/** Opens a tap that is there. */
export const openTap = Effect.fnUntraced(function* (slot: number, ifname = tapName(slot)) {
  const child = yield* lineChild("perl", [join(import.meta.dirname, "tap-guest.pl"), ifname])
  yield* Queue.take(child.lines)
  // The kernel notices a moment later that somebody is there, and drops until then what is for the guest.
  yield* Effect.suspend(() =>
    / UP /u.test(execFileSync("ip", ["-br", "link", "show", "dev", ifname], { encoding: "utf8" }))
      ? Effect.void
      : Effect.fail("not yet")
  ).pipe(
    Effect.tapError(() => Effect.sleep(10)),
    Effect.eventually
  )
  const { mac, guest } = slotAddresses(slot)

  /** The first frame that is what the test waits for; none within the time. */
  const get = (wanted: (got: Got) => boolean, waitMs = 10_000) =>
    Queue.take(child.lines).pipe(
      Effect.map(readFrame),
      Effect.repeat({ until: wanted }),
      Effect.timeoutOption(waitMs)
    )

  return {
    send: child.write,
    get,
    /** Whether it gets a datagram with the text. */
    hears: (text: string) =>
      Effect.map(
        get((got) => got.kind === "datagram" && got.text === text),
        Option.isSome
      ),
    /** A datagram of its own, or one that says that it is another's. */
    sendDatagram: (
      to: { readonly address: string; readonly port: number },
      text: string,
      as: Partial<Datagram["from"]> = {}
    ) =>
      child.write(
        udpFrame({
          from: { mac, address: guest, port: 5000, ...as },
          to: { mac: gatewayMac(slot), ...to },
          text
        })
      )
  }
})

/** Attaches the slot, whose guest listens on the port, and opens its tap. */
export const openGuest = Effect.fnUntraced(function* (
  network: Network["Service"],
  slot: number,
  port = 3000
) {
  yield* network.attach(slot, [port])
  return yield* openTap(slot)
})

/** A machine with a guest in slot 1, and the peer that is the internet to it. */
export const openWorld = Effect.fnUntraced(function* (
  options: { readonly denied?: ReadonlyArray<string>; readonly port?: number } = {}
) {
  yield* cleared
  const peer = yield* makePeer
  const { network, letGo } = yield* openNetwork({ denied: options.denied ?? [] })
  const guest = yield* openGuest(network, 1, options.port)
  return { peer, network, letGo, guest }
})
