/** microVMs of a `FakeHost`. */
import { Clock, Deferred, Effect, Layer, Option, type Scope } from "effect"
import {
  BootFailed,
  Hypervisor,
  HypervisorError,
  type Machine,
  type MachineExit,
  type MachineRecord,
  type MachineSpec,
  SleepFailed,
  type SnapshotPlace,
  SnapshotUnusable,
  WakeFailed
} from "../../src/services/Hypervisor.ts"
import { snapshotMismatch } from "../../src/services/snapshot.ts"
import type { FakeHost, FakeMachine, FakeSnapshot } from "./FakeHost.ts"

const VERSION = "fake 1"

const sameProcess = (a: MachineRecord, b: MachineRecord) =>
  a.process === undefined ||
  (a.process.pid === b.process?.pid &&
    a.process.hostBootId === b.process.hostBootId &&
    a.process.startTime === b.process.startTime)

const find = (host: FakeHost, record: MachineRecord) =>
  host.machines.find(
    (machine) => machine.record.machineId === record.machineId && sameProcess(record, machine.record)
  )

/** @param exit what the daemon sees of its end, which may be less than happened */
const attached = (machine: FakeMachine, exit: Machine["exit"]): Machine => ({
  record: machine.record,
  exit,
  channel: { kind: "unix", path: `/fake/vm/${machine.spec.slot}/guest.sock` },
  residentBytes: Effect.sync(() =>
    Deferred.isDoneUnsafe(machine.ended) ? Option.none() : Option.some(machine.residentBytes)
  ),
  waitsForVolume: Effect.sync(() => machine.waitsForVolume)
})

/** As a daemon sees the end of a process that is no child of its own. */
const seenFromAfar = (machine: FakeMachine): Effect.Effect<Machine["exit"], never, Scope.Scope> =>
  Effect.gen(function* () {
    const exit = yield* Deferred.make<MachineExit>()
    yield* Deferred.await(machine.ended).pipe(
      Effect.flatMap((ended) =>
        Deferred.succeed(
          exit,
          "reason" in ended && ended.reason !== undefined
            ? { kind: "gone", reason: ended.reason }
            : { kind: "gone" }
        )
      ),
      Effect.forkScoped
    )
    return exit
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

      /** The snapshot, good for the spec; any other is discarded. */
      const usable = (spec: MachineSpec, { directory, deploymentId }: SnapshotPlace) =>
        Effect.suspend(() => {
          const found = host.snapshots.get(directory)
          const refuse = (kind: SnapshotUnusable["kind"], reason: string) => {
            host.snapshots.delete(directory)
            return Effect.fail(new SnapshotUnusable({ appId: spec.appId, kind, reason }))
          }
          if (found === undefined || !found.committed) return refuse("missing", "there is none")
          if (found.damage !== undefined) return refuse("damaged", `its ${found.damage} is damaged`)
          const mismatch = snapshotMismatch(found.record, { spec, deploymentId, hypervisor: VERSION })
          return mismatch === undefined ? Effect.succeed(found) : refuse("foreign", mismatch)
        })

      return Hypervisor.of({
        version: VERSION,

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
              return attached(machine, machine.ended)
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
            for (const [directory, { sleeper }] of host.snapshots) {
              if (sleeper.record.machineId === machine.record.machineId) host.snapshots.delete(directory)
            }
            machine.paused = false
            return Option.some(attached(machine, yield* seenFromAfar(machine)))
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
          }),

        sleep: (attached, place) =>
          Effect.uninterruptibleMask((restore) =>
            Effect.gen(function* () {
              const { appId, machineId } = attached.record
              const call = { subject: appId, machineId }
              const machine = find(host, attached.record)
              const sleepFailed = (resumed: boolean) => (reason: string) =>
                new SleepFailed({ appId, reason, resumed })
              if (machine === undefined) return yield* sleepFailed(false)("its VMM has ended")
              const takenAt = yield* Clock.currentTimeMillis
              const snapshot: FakeSnapshot = {
                record: {
                  spec: machine.spec,
                  deploymentId: place.deploymentId,
                  takenAt,
                  hypervisor: VERSION,
                  storedBytes: machine.residentBytes
                },
                sleeper: { ...machine },
                committed: false,
                damage: undefined
              }
              host.snapshots.set(place.directory, snapshot)
              machine.paused = true
              yield* restore(take({ step: "sleep", ...call }, sleepFailed(true))).pipe(
                Effect.andThen(
                  Effect.suspend(() =>
                    Deferred.isDoneUnsafe(machine.ended)
                      ? Effect.fail(sleepFailed(false)("its VMM has ended"))
                      : Effect.void
                  )
                ),
                Effect.onError(() =>
                  Effect.sync(() => {
                    if (dead()) return
                    host.snapshots.delete(place.directory)
                    machine.paused = false
                  })
                )
              )
              snapshot.committed = true
              yield* Effect.ignore(take({ step: "slept", ...call }, sleepFailed(true)))
              if (!dead()) yield* finish(machine, { kind: "killed", signal: "SIGKILL" })
              return snapshot.record
            })
          ),

        wake: (spec, place) =>
          Effect.uninterruptibleMask((restore) =>
            Effect.gen(function* () {
              const { appId, machineId } = spec
              const call = { subject: appId, machineId }
              const wakeFailed = (kept: boolean) => (reason: string) =>
                new WakeFailed({ appId, reason, kept })
              yield* restore(take({ step: "wake", ...call, machine: spec }, wakeFailed(true)))
              const snapshot = yield* usable(spec, place)
              const forget = Effect.sync(() => {
                if (!dead()) host.snapshots.delete(place.directory)
              })
              yield* restore(take({ step: "woken", ...call }, wakeFailed(false))).pipe(
                Effect.tapError(() => forget)
              )
              host.snapshots.delete(place.directory)
              const machine = yield* start(spec, snapshot.sleeper)
              const now = yield* Clock.currentTimeMillis
              machine.clockOffsetMs -= now - snapshot.record.takenAt
              return attached(machine, machine.ended)
            })
          ),

        snapshot: (directory) =>
          Effect.suspend(() => {
            const found = host.snapshots.get(directory)
            if (found?.damage === "record") {
              return Effect.fail(failed("read a snapshot")(`the record in ${directory} is damaged`))
            }
            return Effect.succeed(found?.committed === true ? Option.some(found.record) : Option.none())
          }),

        discard: (directory) =>
          Effect.sync(() => {
            host.snapshots.delete(directory)
          }),

        sweepSnapshots: (snapshotDir, keep) =>
          Effect.sync(() => {
            const kept = new Set(keep.map((appId) => `${snapshotDir}/${appId}`))
            const swept = [...host.snapshots].flatMap(([directory, { committed }]) =>
              directory.startsWith(`${snapshotDir}/`) && !(committed && kept.has(directory))
                ? [directory]
                : []
            )
            for (const directory of swept) host.snapshots.delete(directory)
            return swept.map((directory) => directory.slice(snapshotDir.length + 1))
          })
      })
    })
  )
