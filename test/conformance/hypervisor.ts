/** What every hypervisor must do. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Option, type Scope } from "effect"
import type { AppId } from "../../src/document/schema.ts"
import {
  BootFailed,
  Hypervisor,
  type Machine,
  type MachineExit,
  type MachineRecord,
  type MachineSpec
} from "../../src/services/Hypervisor.ts"

export interface HypervisorHarness {
  /** Each build is a daemon's start on the same machine. */
  readonly layer: Layer.Layer<Hypervisor, unknown>
  /** A microVM that can be booted, with a machineId of its own. Slots from 0 to 3. */
  readonly spec: (appId: string, slot: number) => Effect.Effect<MachineSpec>
  /** Makes the next boot of the spec fail; what the reason must say. */
  readonly spoil: (spec: MachineSpec) => { readonly spec: MachineSpec; readonly reason: RegExp }
  /** Waits until the guest in the machine says hello. */
  readonly hello: (machine: Machine) => Effect.Effect<void, unknown>
  /** Moments in a boot of the spec at which it can be interrupted. */
  readonly moments: (spec: MachineSpec) => ReadonlyArray<Effect.Effect<void>>
  /** Whether a VMM of this machineId runs. */
  readonly runs: (machineId: string) => Effect.Effect<boolean>
  /** Kills the VMM behind the daemon's back. */
  readonly strike: (record: MachineRecord) => Effect.Effect<void>
  /** Everything that is left on the host of microVMs: processes, sockets, files. */
  readonly traces: Effect.Effect<ReadonlyArray<string>>
}

const boot = (spec: MachineSpec) => Hypervisor.use((hypervisor) => hypervisor.boot(spec))
const adopt = (record: MachineRecord) => Hypervisor.use((hypervisor) => hypervisor.adopt(record))
const kill = (record: MachineRecord) => Hypervisor.use((hypervisor) => hypervisor.kill(record))
const sweep = (keep: ReadonlyArray<string>) => Hypervisor.use((hypervisor) => hypervisor.sweep(keep))

const processOf = (record: MachineRecord) => {
  assert.isDefined(record.process)
  return record.process as NonNullable<MachineRecord["process"]>
}

const withoutProcess = ({ process: _, ...record }: MachineRecord): MachineRecord => record

export const hypervisorConformance = (
  name: string,
  make: Effect.Effect<HypervisorHarness, unknown, Scope.Scope>
) =>
  describe(`${name} as a hypervisor`, () => {
    type Body<A> = Effect.Effect<A, unknown, Hypervisor | Scope.Scope>

    const test = (
      sentence: string,
      body: (
        harness: HypervisorHarness,
        /** Runs as a daemon of its own, which ends after it. */
        daemon: <A>(body: Body<A>) => Effect.Effect<A, unknown>
      ) => Effect.Effect<void, unknown, Scope.Scope>
    ) =>
      it.live(sentence, () =>
        Effect.flatMap(make, (harness) =>
          body(harness, (daemon) => daemon.pipe(Effect.scoped, Effect.provide(Layer.fresh(harness.layer))))
        )
      )

    test("says in its version what it is", (_, daemon) =>
      Effect.gen(function* () {
        assert.match(yield* daemon(Hypervisor.useSync((hypervisor) => hypervisor.version)), /^\S+ \d/u)
      }))

    test("boots a microVM whose guest says hello, and names its process", ({ spec, hello, runs }, daemon) =>
      daemon(
        Effect.gen(function* () {
          const web = yield* spec("web", 0)
          const machine = yield* boot(web)
          yield* hello(machine)
          assert.strictEqual(machine.record.machineId, web.machineId)
          assert.strictEqual(machine.record.appId, "web" as AppId)
          assert.strictEqual(machine.record.guestImageVersion, web.image.version)
          assert.isAbove(processOf(machine.record).pid, 1)
          assert.isAbove(Option.getOrThrow(yield* machine.residentBytes), 0)
          assert.isTrue(yield* runs(web.machineId))
          yield* kill(machine.record)
        })
      ))

    test("tells of a VMM that was killed behind its back by which signal", ({ spec, strike }, daemon) =>
      daemon(
        Effect.gen(function* () {
          const machine = yield* boot(yield* spec("web", 0))
          yield* strike(machine.record)
          assert.deepStrictEqual<MachineExit>(yield* Deferred.await(machine.exit), {
            kind: "killed",
            signal: "SIGKILL"
          })
          assert.isTrue(Option.isNone(yield* machine.residentBytes))
          yield* kill(machine.record)
        })
      ))

    test("kills so that nothing is left, and does not mind to be asked again", ({
      spec,
      runs,
      traces
    }, daemon) =>
      daemon(
        Effect.gen(function* () {
          const machine = yield* boot(yield* spec("web", 0))
          yield* kill(machine.record)
          assert.isFalse(yield* runs(machine.record.machineId))
          assert.deepStrictEqual(yield* traces, [])
          assert.strictEqual((yield* Deferred.await(machine.exit)).kind, "killed")
          yield* kill(machine.record)
          yield* kill(withoutProcess(machine.record))
        })
      ))

    test("a late kill does not touch the machine that holds the slot by then", ({ spec, hello }, daemon) =>
      Effect.gen(function* () {
        const [first, second] = yield* daemon(
          Effect.gen(function* () {
            const before = yield* boot(yield* spec("web", 0))
            yield* kill(before.record)
            const after = yield* boot(yield* spec("web", 0))
            yield* kill(before.record)
            yield* kill(withoutProcess(before.record))
            return [before.record, after.record] as const
          })
        )
        yield* daemon(
          Effect.gen(function* () {
            assert.isTrue(Option.isNone(yield* adopt(first)))
            const machine = Option.getOrThrow(yield* adopt(second))
            yield* hello(machine)
            yield* kill(second)
          })
        )
      }))

    test("lets go of its microVMs at a daemon's end; the next one finds them as they were, same process", ({
      spec,
      hello,
      runs,
      traces
    }, daemon) =>
      Effect.gen(function* () {
        const web = yield* spec("web", 0)
        const record = yield* daemon(Effect.map(boot(web), (machine) => machine.record))
        assert.isTrue(yield* runs(web.machineId))
        yield* daemon(
          Effect.gen(function* () {
            const machine = Option.getOrThrow(yield* adopt(record))
            assert.deepStrictEqual(machine.record, record)
            yield* hello(machine)
            assert.isAbove(Option.getOrThrow(yield* machine.residentBytes), 0)
            yield* kill(record)
            assert.strictEqual((yield* Deferred.await(machine.exit)).kind, "gone")
          })
        )
        assert.deepStrictEqual(yield* traces, [])
      }))

    test("finds a microVM by its id when the daemon died before it noted the process", ({
      spec,
      hello
    }, daemon) =>
      Effect.gen(function* () {
        const record = yield* daemon(Effect.map(boot(yield* spec("web", 0)), (machine) => machine.record))
        yield* daemon(
          Effect.gen(function* () {
            const machine = Option.getOrThrow(yield* adopt(withoutProcess(record)))
            assert.deepStrictEqual(machine.record, record)
            yield* hello(machine)
            yield* kill(withoutProcess(record))
            assert.strictEqual((yield* Deferred.await(machine.exit)).kind, "gone")
          })
        )
      }))

    test("tells of an adopted VMM that was killed behind its back", ({ spec, strike }, daemon) =>
      Effect.gen(function* () {
        const record = yield* daemon(Effect.map(boot(yield* spec("web", 0)), (machine) => machine.record))
        yield* daemon(
          Effect.gen(function* () {
            const machine = Option.getOrThrow(yield* adopt(record))
            yield* strike(record)
            assert.deepStrictEqual(yield* Deferred.await(machine.exit), { kind: "gone" })
            yield* kill(record)
          })
        )
      }))

    test("adopts nothing where the VMM has ended", ({ spec, strike }, daemon) =>
      Effect.gen(function* () {
        const record = yield* daemon(Effect.map(boot(yield* spec("web", 0)), (machine) => machine.record))
        yield* strike(record)
        yield* daemon(
          Effect.gen(function* () {
            assert.isTrue(Option.isNone(yield* adopt(record)))
            assert.isTrue(Option.isNone(yield* adopt(withoutProcess(record))))
            yield* kill(record)
          })
        )
      }))

    test("neither adopts nor kills another process that has got the pid", ({ spec, runs }, daemon) =>
      Effect.gen(function* () {
        const record = yield* daemon(Effect.map(boot(yield* spec("web", 0)), (machine) => machine.record))
        const real = processOf(record)
        const others: ReadonlyArray<MachineRecord> = [
          { ...record, process: { ...real, startTime: real.startTime - 1 } },
          { ...record, process: { ...real, hostBootId: "00000000-0000-4000-8000-000000000000" } },
          { ...record, machineId: "ffffffffffffffff" }
        ]
        yield* daemon(
          Effect.gen(function* () {
            for (const other of others) {
              assert.isTrue(Option.isNone(yield* adopt(other)))
              yield* kill(other)
              assert.isTrue(yield* runs(record.machineId))
            }
            yield* kill(record)
          })
        )
      }))

    test("sweeps what is not kept, and leaves the rest alone", ({ spec, hello, runs, traces }, daemon) =>
      Effect.gen(function* () {
        const [kept, stranger] = yield* daemon(
          Effect.gen(function* () {
            return [
              (yield* boot(yield* spec("web", 0))).record,
              (yield* boot(yield* spec("shop", 1))).record
            ] as const
          })
        )
        yield* daemon(
          Effect.gen(function* () {
            assert.deepStrictEqual(yield* sweep([kept.machineId]), [stranger.machineId])
            assert.isFalse(yield* runs(stranger.machineId))
            const machine = Option.getOrThrow(yield* adopt(kept))
            yield* hello(machine)
          })
        )
        assert.deepStrictEqual(yield* daemon(sweep([])), [kept.machineId])
        assert.deepStrictEqual(yield* traces, [])
        assert.deepStrictEqual(yield* daemon(sweep([])), [])
      }))

    test("a boot that fails says why, and leaves nothing", ({ spec, spoil, traces }, daemon) =>
      daemon(
        Effect.gen(function* () {
          const { spec: spoiled, reason } = spoil(yield* spec("web", 0))
          const error = yield* Effect.flip(boot(spoiled))
          assert.instanceOf(error, BootFailed)
          assert.match(error.message, reason)
          assert.include(error.message, "web")
          assert.deepStrictEqual(yield* traces, [])
        })
      ))

    test("a boot that is interrupted leaves nothing, whenever that is", ({ spec, moments, traces }, daemon) =>
      daemon(
        Effect.gen(function* () {
          const count = moments(yield* spec("web", 0)).length
          for (let index = 0; index < count; index++) {
            const web = yield* spec("web", 0)
            const moment = moments(web)[index] ?? Effect.void
            let up: MachineRecord | undefined
            const fiber = yield* boot(web).pipe(
              Effect.tap((machine) =>
                Effect.sync(() => {
                  up = machine.record
                })
              ),
              Effect.andThen(Effect.never),
              Effect.scoped,
              Effect.forkChild({ startImmediately: true })
            )
            yield* moment
            yield* Fiber.interrupt(fiber)
            // too late to be interrupted: it is up, and no boot any more
            if (up !== undefined) yield* kill(up)
            assert.deepStrictEqual(yield* traces, [], `moment ${index}`)
          }
        })
      ))

    test("boots three side by side, and each guest says hello", ({ spec, hello }, daemon) =>
      daemon(
        Effect.gen(function* () {
          const records = yield* Effect.forEach(
            [0, 1, 2],
            (slot) =>
              Effect.gen(function* () {
                const machine = yield* boot(yield* spec(`app-${slot}`, slot))
                yield* hello(machine)
                return machine.record
              }),
            { concurrency: "unbounded" }
          )
          assert.strictEqual(new Set(records.map((record) => processOf(record).pid)).size, 3)
          yield* Effect.forEach(records, kill, { concurrency: "unbounded" })
        })
      ))
  })
