import { Effect } from "effect"
import { fakeMachineSpec, makeFakeHost } from "../../../layers/testing/FakeHost.ts"
import { layerHypervisor } from "../../../layers/testing/Hypervisor.ts"
import { hypervisorConformance } from "../../conformance/hypervisor.ts"

hypervisorConformance(
  "the fake",
  Effect.map(makeFakeHost, (host) => {
    let nextId = 1
    return {
      layer: layerHypervisor(host),
      spec: (appId, slot) =>
        Effect.sync(() => fakeMachineSpec(appId, slot, (nextId++).toString(16).padStart(16, "0"))),
      spoil: (spec) => {
        host.next("booted", spec.appId, { fail: "no memory is left" })
        return { spec, reason: /no memory is left/u }
      },
      hello: () => Effect.void,
      moments: (spec) => {
        host.always("boot", spec.appId, { delayMs: 10 })
        host.always("booted", spec.appId, { delayMs: 10 })
        return [
          Effect.void,
          host.awaitCall("boot", spec.appId),
          host.awaitCall("booted", spec.appId),
          host.awaitCall("booted", spec.appId).pipe(Effect.andThen(Effect.sleep(50)))
        ]
      },
      runs: (machineId) =>
        Effect.sync(() => host.machines.some((machine) => machine.record.machineId === machineId)),
      strike: (record) => host.end(record.appId, { kind: "killed", signal: "SIGKILL" }),
      traces: Effect.sync(() => host.machines.map((machine) => `microVM ${machine.record.machineId}`))
    }
  })
)
