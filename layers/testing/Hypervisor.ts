/** microVMs of a `FakeHost`. */
import { Deferred, Effect, Layer, Option, type Scope } from "effect"
import {
  BootFailed,
  Hypervisor,
  HypervisorError,
  type Machine,
  type MachineExit,
  type MachineRecord
} from "../../src/services/Hypervisor.ts"
import type { FakeHost, FakeMachine } from "./FakeHost.ts"

const sameProcess = (a: MachineRecord, b: MachineRecord) =>
  a.process === undefined ||
  (a.process.pid === b.process?.pid &&
    a.process.hostBootId === b.process.hostBootId &&
    a.process.startTime === b.process.startTime)

const find = (host: FakeHost, record: MachineRecord) =>
  host.machines.find(
    (machine) => machine.record.machineId === record.machineId && sameProcess(record, machine.record)
  )

const attach = (
  machine: FakeMachine,
  told: (exit: MachineExit) => MachineExit
): Effect.Effect<Machine, never, Scope.Scope> =>
  Effect.gen(function* () {
    const exit = yield* Deferred.make<MachineExit>()
    yield* Deferred.await(machine.ended).pipe(
      Effect.flatMap((ended) => Deferred.succeed(exit, told(ended))),
      Effect.forkScoped
    )
    return {
      record: machine.record,
      exit,
      channel: { kind: "unix", path: `/fake/vm/${machine.spec.slot}/guest.sock` },
      residentBytes: Effect.sync(() =>
        Deferred.isDoneUnsafe(machine.ended) ? Option.none() : Option.some(machine.residentBytes)
      )
    }
  })

/** A hypervisor over the given world. Each build is another daemon's: build it anew to play a restart. */
export const layerHypervisor = (host: FakeHost) =>
  Layer.effect(
    Hypervisor,
    Effect.sync(() => {
      const { take, start, finish, epoch } = host.internal
      const born = epoch()
      const dead = () => epoch() !== born
      const failed = (operation: string) => (reason: string) => new HypervisorError({ operation, reason })

      return Hypervisor.of({
        version: "fake 1",

        boot: (spec) =>
          Effect.uninterruptibleMask((restore) =>
            Effect.gen(function* () {
              const subject = { subject: spec.appId, machineId: spec.machineId }
              const bootFailed = (reason: string) => new BootFailed({ appId: spec.appId, reason })
              yield* restore(take({ step: "boot", ...subject, machine: spec }, bootFailed))
              const machine = yield* start(spec)
              yield* restore(take({ step: "booted", ...subject }, bootFailed)).pipe(
                Effect.onError(() =>
                  dead() ? Effect.void : finish(machine, { kind: "killed", signal: "SIGKILL" })
                )
              )
              return yield* attach(machine, (exit) => exit)
            })
          ),

        adopt: (record) =>
          Effect.gen(function* () {
            yield* take(
              { step: "adopt", subject: record.appId, machineId: record.machineId },
              failed(`look for the microVM of ${record.appId}`)
            )
            const machine = find(host, record)
            if (machine === undefined) return Option.none()
            return Option.some(
              yield* attach(machine, (exit) =>
                "reason" in exit && exit.reason !== undefined
                  ? { kind: "gone", reason: exit.reason }
                  : { kind: "gone" }
              )
            )
          }),

        kill: (record) =>
          Effect.gen(function* () {
            yield* take(
              { step: "kill", subject: record.appId, machineId: record.machineId },
              failed(`end the microVM of ${record.appId}`)
            )
            const machine = find(host, record)
            if (machine !== undefined) yield* finish(machine, { kind: "killed", signal: "SIGKILL" })
          }),

        sweep: (keep) =>
          Effect.gen(function* () {
            yield* take({ step: "sweep", subject: "host" }, failed("end the microVMs of no app"))
            const strangers = host.machines.filter((machine) => !keep.includes(machine.record.machineId))
            yield* Effect.forEach(strangers, (machine) =>
              finish(machine, { kind: "killed", signal: "SIGKILL" })
            )
            return strangers.map((machine) => machine.record.machineId)
          })
      })
    })
  )
