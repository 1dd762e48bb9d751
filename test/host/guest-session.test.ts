import { execFileSync } from "node:child_process"
import { Effect, Layer } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import type { BootSpec } from "../../src/services/Guest.ts"
import { Hypervisor, type Machine } from "../../src/services/Hypervisor.ts"
import { guestConformance, ONE_RESTART, type Program } from "../conformance/guest.ts"
import { bootSpec } from "../support/boot-spec.ts"
import { volumeFile } from "../support/volume-file.ts"
import { machineSpec, PATIENCE_MS, qemu, runtimeDirectory } from "./qemu.ts"

const SLOT = 8
const { guest: address, host: gateway } = slotAddresses(SLOT)

const sh = (script: string): Partial<BootSpec> => ({ program: "/bin/sh", args: ["-c", script] })

const LISTEN = `use IO::Socket; $s = IO::Socket::INET->new(Listen => 64, LocalPort => 3000) or die; 1 while $s->accept`

const ECHO = `use Socket; $| = 1; socket(S, PF_INET, SOCK_DGRAM, 0); bind(S, pack_sockaddr_in(3001, INADDR_ANY)) or die;
  print "listens\n"; send(S, $bytes, 0, $from) while defined($from = recv(S, $bytes, 65535, 0))`

const programs: Record<Program, Partial<BootSpec>> = {
  prints: sh("echo out; echo err >&2; exec sleep 100000"),
  // late enough to be asked before
  listens: { program: "/usr/bin/perl", args: ["-e", `sleep 1; ${LISTEN}`] },
  echoes: { program: "/usr/bin/perl", args: ["-e", ECHO] },
  exits: { ...sh("exit 3"), restartPolicy: ONE_RESTART },
  missing: { program: "/no/such/program" }
}

guestConformance(
  "PID 1 over virtio-serial",
  Effect.gen(function* () {
    const directory = yield* runtimeDirectory
    const hypervisor = yield* Layer.build(qemu(directory))
    const service = yield* Effect.provide(Hypervisor, hypervisor)

    const bootMachine = Effect.gen(function* () {
      const spec = yield* machineSpec(directory, "web", SLOT)
      execFileSync("mke2fs", ["-q", "-F", "-t", "ext4", volumeFile(spec.volume)])
      return yield* Effect.acquireRelease(service.boot(spec), (machine) =>
        Effect.ignore(service.kill(machine.record))
      )
    })
    const signal = (machine: Machine, name: NodeJS.Signals) =>
      Effect.sync(() => process.kill(machine.record.process?.pid ?? 0, name))

    return {
      layer: layerVirtioSerialGuest,
      boot: (program) =>
        Effect.map(
          bootMachine,
          (machine) =>
            [
              machine,
              bootSpec({ network: { address, prefixLength: 30, gateway }, ...programs[program] })
            ] as const
        ),
      bootSilent: Effect.tap(bootMachine, (machine) => signal(machine, "SIGSTOP")),
      strike: (machine) => signal(machine, "SIGKILL"),
      patienceMs: PATIENCE_MS
    }
  })
)
