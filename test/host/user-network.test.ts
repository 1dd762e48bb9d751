import { execFileSync } from "node:child_process"
import { createServer, type Server } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Queue } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { layerHttpProber } from "../../layers/health/http.ts"
import { layerUserNetwork } from "../../layers/network/user.ts"
import { Guest } from "../../src/services/Guest.ts"
import { HealthProber } from "../../src/services/HealthProber.ts"
import { Hypervisor } from "../../src/services/Hypervisor.ts"
import { Network } from "../../src/services/Network.ts"
import { bootSpec } from "../support/boot-spec.ts"
import { volumeFile } from "../support/volume-file.ts"
import { machineSpec, PATIENCE_MS, qemu, runtimeDirectory } from "./qemu.ts"

const SLOT = 12
const PORT = 3000
/** One that QEMU, without rights, could not listen on by its own number. */
const LOW_PORT = 80

/** A server on loopback that counts who comes. */
const hostServer = Effect.acquireRelease(
  Effect.callback<{ readonly server: Server; readonly port: number; readonly visits: () => number }>(
    (resume) => {
      let visits = 0
      const server = createServer((socket) => {
        visits++
        socket.destroy()
      })
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" && address !== null ? address.port : 0
        resume(Effect.succeed({ server, port, visits: () => visits }))
      })
    }
  ),
  ({ server }) => Effect.sync(() => server.close())
)

/** Tries the addresses, says what came of each, then answers every request on the port with 200. */
const program = (targets: ReadonlyArray<string>) => `
use IO::Socket; $| = 1;
for my $target (qw(${targets.join(" ")})) {
  my $socket = IO::Socket::INET->new(PeerAddr => $target, Timeout => 5);
  print "$target ", ($socket ? "connected" : "nothing"), "\\n";
}
my $port = fork ? ${PORT} : ${LOW_PORT};
my $server = IO::Socket::INET->new(Listen => 64, LocalPort => $port, ReuseAddr => 1) or die;
while (my $client = $server->accept) {
  while (<$client>) { last if /^\\r?$/ }
  print $client "HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n";
  close $client;
}
`

describe("a guest on the user network", () => {
  it.live(
    "is reached by the host on its slot's loopback addresses, at ports below 1024 too, and reaches nothing itself",
    () =>
      Effect.gen(function* () {
        const directory = yield* runtimeDirectory
        const hypervisor = yield* Effect.provide(Hypervisor, yield* Layer.build(qemu(directory)))
        const network = yield* Network
        const host = yield* hostServer
        const link = yield* network.attach(SLOT, [PORT, LOW_PORT])
        const spec = { ...(yield* machineSpec(directory, "web", SLOT)), link }
        execFileSync("mke2fs", ["-q", "-F", "-t", "ext4", volumeFile(spec.volume)])
        const machine = yield* Effect.acquireRelease(hypervisor.boot(spec), ({ record }) =>
          Effect.ignore(hypervisor.kill(record))
        )
        const session = yield* Guest.use((guest) => guest.connect(machine, PATIENCE_MS))

        // QEMU's gateway stands for the host's loopback where it is not restricted
        const targets = [`${link.hostAddress}:${host.port}`, `127.0.0.1:${host.port}`]
        yield* session.handOver(
          bootSpec({
            network: {
              address: link.guestAddress,
              prefixLength: link.prefixLength,
              gateway: link.hostAddress
            },
            program: "/usr/bin/perl",
            args: ["-e", program(targets)]
          })
        )
        let said = ""
        while (said.split("\n").length <= targets.length) {
          const event = yield* Queue.take(session.events)
          if (event.kind === "output") said += new TextDecoder().decode(event.bytes)
        }
        assert.strictEqual(said, targets.map((target) => `${target} nothing\n`).join(""))
        assert.strictEqual(host.visits(), 0)

        for (const port of [PORT, LOW_PORT]) {
          while ((yield* session.probe(port, 5_000)) !== "accepted") yield* Effect.sleep(20)
          const answer = yield* HealthProber.use((prober) =>
            prober.http({ ...network.reach(SLOT, port), path: "/", timeoutMs: 30_000 })
          )
          assert.deepStrictEqual(answer, { kind: "answered", status: 200 }, `port ${port}`)
        }
      }).pipe(Effect.provide(Layer.mergeAll(layerUserNetwork, layerVirtioSerialGuest, layerHttpProber)))
  )
})
