import { Effect, Layer } from "effect"
import { fakeMachineSpec, makeFakeHost } from "../../../layers/testing/FakeHost.ts"
import { layerGuest } from "../../../layers/testing/Guest.ts"
import { layerHypervisor } from "../../../layers/testing/Hypervisor.ts"
import { snapshotConformance } from "../../conformance/snapshot.ts"
import { bootSpec } from "../../support/boot-spec.ts"

snapshotConformance(
  "the fake",
  Effect.map(makeFakeHost, (host) => {
    let nextId = 1
    const machineId = () => (nextId++).toString(16).padStart(16, "0")
    const place = (appId: string) => ({ directory: `/snapshots/${appId}`, deploymentId: "dep-1" })
    return {
      layer: Layer.mergeAll(layerHypervisor(host), layerGuest(host)),
      spec: (appId, slot) => Effect.sync(() => fakeMachineSpec(appId, slot, machineId())),
      again: (spec) => ({ ...spec, machineId: machineId() }),
      program: () => bootSpec(),
      place,
      flips: ({ directory }) =>
        Effect.sync(() =>
          (["record", "memory", "state"] as const).map(
            (part) =>
              [
                part,
                Effect.sync(() => {
                  const snapshot = host.snapshots.get(directory)
                  if (snapshot !== undefined) snapshot.damage = part
                })
              ] as const
          )
        ),
      spoilSleep: (spec) => {
        host.next("sleep", spec.appId, { fail: "the disk is full" })
        return { place: place(spec.appId), reason: /the disk is full/u, repair: Effect.void }
      },
      spoilWake: (spec) =>
        Effect.sync(() => {
          host.next("wake", spec.appId, { fail: "no memory is left" })
          return Effect.void
        }),
      moments: (step, spec) => {
        const stalled = (at: "sleep" | "slept" | "wake" | "woken") =>
          Effect.gen(function* () {
            const taken = host.callsOf(at, spec.appId).length
            yield* host.awaitCall(at, spec.appId, Math.max(1, taken))
          })
        const steps = step === "sleep" ? (["sleep", "slept"] as const) : (["wake", "woken"] as const)
        for (const at of steps) host.always(at, spec.appId, { delayMs: 10 })
        return [Effect.void, ...steps.map(stalled), Effect.sleep(5), Effect.sleep(15), Effect.sleep(100)]
      },
      clockError: (machine) =>
        Effect.sync(
          () =>
            host.machines.find(({ record }) => record.machineId === machine.record.machineId)
              ?.clockOffsetMs ?? Number.NaN
        ),
      runs: (id) => Effect.sync(() => host.machines.some(({ record }) => record.machineId === id)),
      strike: (machine) => host.end(machine.record.appId, { kind: "killed", signal: "SIGKILL" }),
      traces: Effect.sync(() => [
        ...host.machines.map(({ record }) => `microVM ${record.machineId}`),
        ...host.snapshots.keys()
      ]),
      patienceMs: 1_000
    }
  })
)
