import { Effect } from "effect"
import { hypervisorConformance } from "../conformance/hypervisor.ts"
import { hello, machineSpec, processesOf, qemu, runtimeDirectory, tracesOf } from "./qemu.ts"

/** Kills what a failed test may have left, after the test and before its directory goes. */
const runtimeDir = Effect.flatMap(runtimeDirectory, (directory) =>
  Effect.acquireRelease(Effect.succeed(directory), () =>
    Effect.sync(() => {
      for (const { pid } of processesOf(directory)) process.kill(pid, "SIGKILL")
    })
  )
)

hypervisorConformance(
  "QEMU",
  Effect.map(runtimeDir, (directory) => ({
    layer: qemu(directory),
    spec: (appId, slot) => Effect.orDie(machineSpec(directory, appId, slot)),
    spoil: (spec) => ({
      spec: { ...spec, image: { ...spec.image, kernel: `${directory}/no-kernel` } },
      reason: /could not open kernel file .*no-kernel.*No such file/u
    }),
    hello: (machine) => Effect.asVoid(hello(machine)),
    moments: () => [0, 3, 10, 30, 60, 100, 200, 400, 1000].map((ms) => Effect.sleep(ms)),
    runs: (machineId) =>
      Effect.sync(() => processesOf(directory).some(({ command }) => command.includes(machineId))),
    strike: (record) =>
      Effect.gen(function* () {
        process.kill(record.process?.pid ?? 0, "SIGKILL")
        while (processesOf(directory).some(({ pid }) => pid === record.process?.pid)) yield* Effect.sleep(5)
      }),
    traces: Effect.sync(() => tracesOf(directory))
  }))
)
