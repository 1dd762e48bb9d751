/** Boots one machine in the runtime directory that it is given, says its record on stdout, and stays. */
import { Effect } from "effect"
import { Hypervisor } from "../../src/services/Hypervisor.ts"
import { machineSpec, qemu } from "./qemu.ts"

const directory = process.argv[2] ?? ""

const main = Effect.gen(function* () {
  const spec = yield* machineSpec(directory, "web", 0)
  const machine = yield* Hypervisor.use((hypervisor) => hypervisor.boot(spec))
  console.log(`record ${JSON.stringify(machine.record)}`)
  yield* Effect.never
})

// the timer keeps the process there
setInterval(() => undefined, 60_000)
Effect.runFork(Effect.scoped(main).pipe(Effect.provide(qemu(directory))))
