import { Effect, Layer } from "effect"
import { fakeMachineSpec, type GuestAct, makeFakeHost } from "../../../layers/testing/FakeHost.ts"
import { layerGuest } from "../../../layers/testing/Guest.ts"
import { layerHypervisor } from "../../../layers/testing/Hypervisor.ts"
import { Hypervisor, type MachineExit } from "../../../src/services/Hypervisor.ts"
import { guestConformance, type Program } from "../../conformance/guest.ts"
import { bootSpec } from "../../support/boot-spec.ts"

const text = (stream: "stdout" | "stderr", words: string): GuestAct => ({
  say: { kind: "output", stream, bytes: new TextEncoder().encode(words) }
})
const started: GuestAct = { say: { kind: "started" } }
const off: MachineExit = { kind: "exited", code: 0 }

const lives: Record<Program, ReadonlyArray<GuestAct>> = {
  prints: [started, text("stdout", "out\n"), text("stderr", "err\n")],
  listens: [started, { listen: true, afterMs: 50 }],
  echoes: [started, { listen: true }, text("stdout", "listens\n")],
  exits: [
    started,
    {
      say: {
        kind: "restarting",
        attempt: 1,
        budget: 1,
        total: 1,
        exit: { code: 3 },
        backoffMs: 10,
        reason: "exit 3"
      }
    },
    { ...started, afterMs: 10 },
    { say: { kind: "failed", reason: "the program exited with code 3" } },
    { exit: off }
  ],
  missing: [{ say: { kind: "failed", reason: "/no/such is in no layer" } }, { exit: off }]
}

guestConformance(
  "the fake",
  Effect.gen(function* () {
    const host = yield* makeFakeHost
    const hypervisor = yield* Layer.build(layerHypervisor(host))
    const boot = Hypervisor.use((service) =>
      service.boot(fakeMachineSpec("web", 0, "00000000000000aa"))
    ).pipe(Effect.provide(hypervisor))
    return {
      layer: layerGuest(host),
      boot: (program) =>
        Effect.suspend(() => {
          host.script("web", { life: lives[program] })
          const command = program === "missing" ? "/no/such" : "/bin/true"
          return Effect.map(boot, (machine) => [machine, bootSpec({ program: command })] as const)
        }),
      bootSilent: Effect.suspend(() => {
        host.script("web", { helloAfterMs: "never" })
        return boot
      }),
      strike: () => host.end("web", { kind: "killed", signal: "SIGKILL" }),
      patienceMs: 5_000
    }
  })
)
