/** A whole host on taps: documents in, and what is left on the machine. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { slotAddresses } from "../../src/network/addresses.ts"
import {
  awaitHost,
  awaitInstance,
  awaitState,
  document,
  documentOf,
  instance,
  makeHost,
  put,
  request,
  runDaemon,
  tenantLayer,
  volume
} from "./harness.ts"
import { INTERNET, makePeer, PEER_PORT } from "./network/peer.ts"
import { cleared, ip, taps } from "./network/tap-world.ts"
import { inOwnNamespace } from "./own-namespace.ts"

describe.skipIf(!inOwnNamespace)("a host on taps", () => {
  layer(NodeServices.layer, { excludeTestServices: true })((it) => {
    it.effect("runs apps behind taps of their own, also past its own death, and leaves none behind", () =>
      Effect.gen(function* () {
        yield* cleared
        yield* makePeer
        const host = yield* makeHost({ network: "tap" })
        const tenant = yield* tenantLayer(host)
        // What a machine may have left of an app that nobody knows any more.
        ip("tuntap", "add", "dev", "nbr9", "mode", "tap")
        const daemon = yield* runDaemon(host)
        yield* put(host, documentOf(instance("one", tenant)))
        yield* awaitState(host, "one", "running").pipe(Effect.raceFirst(daemon.ended))
        assert.deepStrictEqual(taps(), ["nbr0"])
        const reaches = (address: string) =>
          Effect.map(request(host, "one", `/reach?addr=${address}`), ({ body }) => body.split(" ")[0])
        assert.strictEqual(yield* reaches(`${INTERNET}:${PEER_PORT}`), "reached")
        assert.strictEqual(yield* reaches(`${slotAddresses(0).host}:${host.proxyPort}`), "blocked")

        yield* daemon.kill
        const next = yield* runDaemon(host)
        const both = ["one", "two"]
        yield* put(host, documentOf(...both.map((appId) => instance(appId, tenant))))
        yield* awaitState(host, "two", "running").pipe(Effect.raceFirst(next.ended))
        assert.strictEqual((yield* request(host, "one")).status, 200)
        assert.strictEqual(yield* reaches(`${INTERNET}:${PEER_PORT}`), "reached")
        assert.strictEqual(yield* reaches(`${slotAddresses(1).guest}:3000`), "blocked")
        assert.strictEqual((yield* request(host, "two")).status, 200)

        yield* put(host, documentOf(instance("one", tenant, { desiredState: "stopped" })))
        yield* awaitInstance(host, "one", "stopped", ({ state }) => state === "stopped")
        yield* put(
          host,
          document([volume("one", { desiredState: "absent" }), volume("two", { desiredState: "absent" })], [])
        )
        yield* awaitHost(host, "nobody is left", ({ instances }) => instances.length === 0)
        yield* next.stop
        assert.deepStrictEqual(taps(), [])
      })
    )
  })
})
