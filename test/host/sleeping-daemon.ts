/**
 * A daemon that puts a machine to sleep, or wakes one, to be killed over it: says `ready` before and `done` after, and stays.
 *
 *     node sleeping-daemon.ts RUNTIME_DIR sleep|wake JSON
 */
import { Effect, Option } from "effect"
import {
  Hypervisor,
  type MachineRecord,
  type MachineSpec,
  type SnapshotPlace
} from "../../src/services/Hypervisor.ts"
import { qemu } from "./qemu.ts"

const [directory = "", step = "", json = "{}"] = process.argv.slice(2)
const { record, spec, place } = JSON.parse(json) as {
  readonly record: MachineRecord
  readonly spec: MachineSpec
  readonly place: SnapshotPlace
}

const main = Effect.gen(function* () {
  const hypervisor = yield* Hypervisor
  if (step === "sleep") {
    const machine = Option.getOrThrow(yield* hypervisor.adopt(record))
    console.log("ready")
    yield* hypervisor.sleep(machine, place)
  } else {
    console.log("ready")
    yield* hypervisor.wake(spec, place)
  }
  console.log("done")
  yield* Effect.never
})

// the timer keeps the process there
setInterval(() => undefined, 60_000)
Effect.runFork(Effect.scoped(main).pipe(Effect.provide(qemu(directory))))
