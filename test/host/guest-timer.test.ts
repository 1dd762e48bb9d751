/** The only timer of an emulated guest, which its kernel measures as it boots, on a host that is busy just then. */
import { execFileSync } from "node:child_process"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger, Queue, References, type Scope } from "effect"
import { layerVirtioSerialGuest } from "../../layers/guest/virtio-serial/layer.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import { Guest } from "../../src/services/Guest.ts"
import { Hypervisor, type Machine } from "../../src/services/Hypervisor.ts"
import { bootSpec } from "../support/boot-spec.ts"
import { volumeFile } from "../support/volume-file.ts"
import { machineSpec, PATIENCE_MS, qemu, runtimeDirectory } from "./qemu.ts"

const SLOT = 12
const SLEEPS = 5
const SLEEP_MS = 400

/** Has the process stand still for most of the time, as one does that gets little of its host. */
const starve = (pid: number) =>
  Effect.gen(function* () {
    process.kill(pid, "SIGSTOP")
    yield* Effect.sleep(150)
    process.kill(pid, "SIGCONT")
    yield* Effect.sleep(50)
  }).pipe(Effect.forever, Effect.ensuring(Effect.sync(() => process.kill(pid, "SIGCONT"))))

describe("a guest that boots while its VMM gets little of the processors", () => {
  it.live("measures its timer anew, so that whoever waits in it waits for no longer than that", () => {
    const lines: Array<string> = []
    const log = Logger.layer([Logger.make(({ message }) => lines.push([message].flat().join(" ")))])
    return Effect.gen(function* () {
      const directory = yield* runtimeDirectory
      yield* Effect.gen(function* () {
        const spec = yield* machineSpec(directory, "web", SLOT)
        execFileSync("mke2fs", ["-q", "-F", "-t", "ext4", volumeFile(spec.volume)])
        const bootsAnew = Effect.gen(function* () {
          while (!lines.some((line) => line.includes("it boots anew"))) yield* Effect.sleep(20)
        })
        /** The kernel may have luck, and a processor, in just the tenth of a second in which it measures. */
        const badlyMeasured: Effect.Effect<Machine, unknown, Guest | Hypervisor | Scope.Scope> = Effect.gen(
          function* () {
            const machine = yield* Hypervisor.use((service) => service.boot(spec))
            const starving = yield* Effect.forkChild(starve(machine.record.process?.pid ?? assert.fail()))
            const lucky = Guest.use((guest) => guest.connect(machine, PATIENCE_MS)).pipe(Effect.scoped)
            const first = yield* Effect.raceFirst(Effect.as(bootsAnew, "anew"), Effect.as(lucky, "up"))
            yield* Fiber.interrupt(starving)
            if (first === "anew") return machine
            yield* Hypervisor.use((service) => service.kill(machine.record))
            return yield* badlyMeasured
          }
        )
        const machine = yield* badlyMeasured
        const session = yield* Guest.use((guest) => guest.connect(machine, PATIENCE_MS))
        const { guest: address, host: gateway } = slotAddresses(SLOT)
        // clock_gettime(CLOCK_MONOTONIC), which is the TSC's
        const script = `$| = 1; sub now { my $t = "\\0" x 16; syscall(228, 1, $t); my ($s, $n) = unpack("qq", $t); $s * 1000 + $n / 1e6 }
          for (1 .. ${SLEEPS}) { $began = now(); select(undef, undef, undef, ${SLEEP_MS / 1000}); printf("%d\\n", now() - $began) } sleep`
        yield* session.handOver(
          bootSpec({
            network: { address, prefixLength: 30, gateway },
            hostTime: Date.now(),
            program: "/usr/bin/perl",
            args: ["-e", script]
          })
        )
        let text = ""
        while (text.split("\n").length <= SLEEPS) {
          const event = yield* Queue.take(session.events)
          if (event.kind === "output") text += new TextDecoder().decode(event.bytes)
        }
        const slept = text.trim().split("\n").map(Number)
        // Any of them may have been late for want of a processor, but not all by the same factor.
        assert.isAtLeast(Math.min(...slept), SLEEP_MS)
        assert.isBelow(Math.min(...slept), SLEEP_MS * 1.05)
        yield* Hypervisor.use((service) => service.kill(machine.record))
      }).pipe(Effect.provide(Layer.merge(qemu(directory), layerVirtioSerialGuest)))
    }).pipe(Effect.provide(log), Effect.provideService(References.MinimumLogLevel, "Debug"))
  })
})
