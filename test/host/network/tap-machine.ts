/** Real microVMs behind taps, with the test program in them. */
import { execFileSync } from "node:child_process"
import * as http from "node:http"
import { Effect, Layer } from "effect"
import type { TapOptions } from "../../../layers/network/tap/layer.ts"
import { Guest } from "../../../src/services/Guest.ts"
import { Hypervisor } from "../../../src/services/Hypervisor.ts"
import type { Network } from "../../../src/services/Network.ts"
import { bootSpec } from "../../support/boot-spec.ts"
import { volumeFile } from "../../support/volume-file.ts"
import { tenantSquashfs } from "../../tenant/build.ts"
import { machineSpec, PATIENCE_MS, qemu, runtimeDirectory } from "../qemu.ts"
import { makePeer } from "./peer.ts"
import { cleared, openNetwork } from "./tap-world.ts"

const HTTP_PORT = 3000

/** What the guest answers to one request, from the host. */
export const ask = (address: string, path: string) =>
  Effect.callback<string, Error>((resume) => {
    const request = http.get({ host: address, port: HTTP_PORT, path, agent: false }, (response) => {
      let body = ""
      response.setEncoding("utf8")
      response.on("data", (piece: string) => {
        body += piece
      })
      response.on("end", () => resume(Effect.succeed(body)))
    })
    request.on("error", (error) => resume(Effect.fail(error)))
    return Effect.sync(() => request.destroy())
  })

/** What runs the microVMs of one directory. */
export const hypervisorIn = (directory: string) =>
  Effect.flatMap(Layer.build(qemu(directory)), (context) => Effect.provide(Hypervisor, context))

/** Boots the test program in a slot; ended with the scope. Succeeds once it answers. */
export const bootTenant = Effect.fnUntraced(function* (
  directory: string,
  hypervisor: Hypervisor["Service"],
  network: Network["Service"],
  appId: string,
  slot: number,
  args: ReadonlyArray<string> = []
) {
  const link = yield* network.attach(slot, [HTTP_PORT])
  const spec = {
    ...(yield* machineSpec(directory, appId, slot)),
    layers: [yield* tenantSquashfs(directory)],
    link
  }
  execFileSync("mke2fs", ["-q", "-F", "-t", "ext4", volumeFile(spec.volume)])
  const machine = yield* Effect.acquireRelease(hypervisor.boot(spec), ({ record }) =>
    Effect.ignore(hypervisor.kill(record))
  )
  const session = yield* Guest.use((guest) => guest.connect(machine, PATIENCE_MS))
  yield* session.handOver(
    bootSpec({
      network: { address: link.guestAddress, prefixLength: link.prefixLength, gateway: link.hostAddress },
      layerCount: 1,
      program: "/app/server",
      args
    })
  )
  while ((yield* session.probe(HTTP_PORT, 5_000)) !== "accepted") yield* Effect.sleep(50)
  const { host } = network.reach(slot, HTTP_PORT)
  return { spec, machine, session, link, ask: (path: string) => ask(host, path) }
})

/** A machine with the peer that is the internet to its guests, and what boots the test program in a slot of it. */
export const openMachine = Effect.fnUntraced(function* (options: Partial<TapOptions> = {}) {
  yield* cleared
  const peer = yield* makePeer
  const directory = yield* runtimeDirectory
  const hypervisor = yield* hypervisorIn(directory)
  const { network } = yield* openNetwork(options)
  const boot = (appId: string, slot: number, args?: ReadonlyArray<string>) =>
    bootTenant(directory, hypervisor, network, appId, slot, args)
  return { peer, directory, hypervisor, network, boot }
})
