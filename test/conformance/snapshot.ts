/** What every hypervisor must do with machines that sleep. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Option, Queue, type Scope } from "effect"
import { type BootSpec, Guest, type GuestSession } from "../../src/services/Guest.ts"
import {
  Hypervisor,
  type Machine,
  type MachineSpec,
  SleepFailed,
  type SnapshotPlace,
  SnapshotUnusable,
  WakeFailed
} from "../../src/services/Hypervisor.ts"

export interface SnapshotHarness {
  /** Each build is a daemon's start on the same machine. */
  readonly layer: Layer.Layer<Hypervisor | Guest, unknown>
  /** A microVM that can be booted, with a machineId of its own. Slots from 0 to 3. */
  readonly spec: (appId: string, slot: number) => Effect.Effect<MachineSpec>
  /** The spec with another machineId. */
  readonly again: (spec: MachineSpec) => MachineSpec
  /** A program that runs until it is ended. */
  readonly program: (spec: MachineSpec) => BootSpec
  readonly place: (appId: string) => SnapshotPlace
  /** Ways to damage the snapshot, each by one bit. */
  readonly flips: (
    place: SnapshotPlace
  ) => Effect.Effect<ReadonlyArray<readonly [what: string, flip: Effect.Effect<void>]>>
  /** Makes the next sleep to the place fail; what the reason must say; and puts it right again. */
  readonly spoilSleep: (spec: MachineSpec) => {
    readonly place: SnapshotPlace
    readonly reason: RegExp
    readonly repair: Effect.Effect<void>
  }
  /** Makes the next wake fail before anything is restored. */
  readonly spoilWake: (spec: MachineSpec) => Effect.Effect<Effect.Effect<void>, never, Scope.Scope>
  /** Moments at which a sleep or a wake of the machine can be interrupted. */
  readonly moments: (step: "sleep" | "wake", spec: MachineSpec) => ReadonlyArray<Effect.Effect<void>>
  /** How far the clock of the guest is from the host's, in ms. */
  readonly clockError: (machine: Machine, session: GuestSession) => Effect.Effect<number, unknown>
  readonly runs: (machineId: string) => Effect.Effect<boolean>
  /** Kills the VMM behind the daemon's back. */
  readonly strike: (machine: Machine) => Effect.Effect<void>
  /** Everything that is left on the host of microVMs and snapshots: processes, sockets, files. */
  readonly traces: Effect.Effect<ReadonlyArray<string>>
  readonly patienceMs: number
}

const LEASE_MS = 30_000

const hypervisor = <A, E, R>(use: (service: Hypervisor["Service"]) => Effect.Effect<A, E, R>) =>
  Hypervisor.use(use)

export const snapshotConformance = (
  name: string,
  make: Effect.Effect<SnapshotHarness, unknown, Scope.Scope>
) =>
  describe(`${name} as a keeper of machines that sleep`, () => {
    type Body<A> = Effect.Effect<A, unknown, Hypervisor | Guest | Scope.Scope>

    type Host = SnapshotHarness & ReturnType<typeof stepsOf>
    /** Runs as a daemon of its own, which ends after it. */
    type RunDaemon = <A>(body: Body<A>) => Effect.Effect<A, unknown>

    /** A test over the lives of several daemons. */
    const testDaemons = (
      sentence: string,
      body: (host: Host, daemon: RunDaemon) => Effect.Effect<void, unknown, Scope.Scope>
    ) =>
      it.live(sentence, () =>
        Effect.flatMap(make, (harness) =>
          body({ ...harness, ...stepsOf(harness) }, (daemon) =>
            daemon.pipe(Effect.scoped, Effect.provide(Layer.fresh(harness.layer)))
          )
        )
      )

    /** A test within the life of one daemon. */
    const test = (sentence: string, body: (host: Host) => Body<void>) =>
      testDaemons(sentence, (host, daemon) => daemon(body(host)))

    const stepsOf = ({ spec, program, again, place, patienceMs }: SnapshotHarness) => {
      const talk = <A, E>(machine: Machine, say: (session: GuestSession) => Effect.Effect<A, E>) =>
        Effect.scoped(
          Effect.flatMap(
            Guest.use((guest) => guest.connect(machine, patienceMs)),
            say
          )
        )
      const phase = (machine: Machine) => talk(machine, (session) => Effect.succeed(session.phase))
      /** Boots a machine whose program runs. */
      const boot = (spec: MachineSpec) =>
        Effect.gen(function* () {
          const machine = yield* hypervisor((service) => service.boot(spec))
          yield* talk(machine, (session) =>
            Effect.gen(function* () {
              yield* session.handOver(program(spec))
              while ((yield* Queue.take(session.events)).kind !== "started") yield* Effect.void
            })
          )
          return machine
        })
      const freeze = (machine: Machine) => talk(machine, (session) => session.freeze(LEASE_MS))
      const sleep = (machine: Machine) =>
        Effect.andThen(
          freeze(machine),
          hypervisor((service) => service.sleep(machine, place(machine.record.appId)))
        )
      /** A machine whose program ran, and that sleeps. */
      const asleep = (appId: string, slot = 0) =>
        Effect.tap(spec(appId, slot), (machine) => Effect.flatMap(boot(machine), sleep))
      const wakeFrozen = (spec: MachineSpec) =>
        hypervisor((service) => service.wake(again(spec), place(spec.appId)))
      const thaw = (machine: Machine) => talk(machine, (session) => session.thaw)
      const wake = (spec: MachineSpec) => Effect.tap(wakeFrozen(spec), thaw)
      const kill = (machine: Machine) => hypervisor((service) => service.kill(machine.record))
      const snapshot = (spec: MachineSpec) =>
        hypervisor((service) => service.snapshot(place(spec.appId).directory))
      /** The guest's memory holds that it was given a program: a guest that was booted anew waits for one. */
      const remembers = (machine: Machine) =>
        Effect.map(phase(machine), (told) => assert.strictEqual(told, "running"))
      return { talk, phase, boot, freeze, sleep, asleep, wake, wakeFrozen, thaw, kill, snapshot, remembers }
    }

    test("a machine that sleeps is a snapshot and nothing else, and wakes with its memory", (host) =>
      Effect.gen(function* () {
        const web = yield* host.spec("web", 0)
        const machine = yield* host.boot(web)
        const record = yield* host.sleep(machine)
        assert.deepStrictEqual(record.spec, web)
        assert.isFalse(yield* host.runs(web.machineId))
        assert.strictEqual((yield* Deferred.await(machine.exit)).kind, "killed")
        assert.deepStrictEqual(yield* host.snapshot(web), Option.some(record))

        const woken = yield* host.wake(web)
        yield* host.remembers(woken)
        assert.notStrictEqual(woken.record.machineId, web.machineId)
        assert.isTrue(Option.isNone(yield* host.snapshot(web)))
        yield* host.kill(woken)
        assert.deepStrictEqual(yield* host.traces, [])
      }))

    testDaemons("a machine is woken by the next daemon, and sleeps and wakes for it again", (host, daemon) =>
      Effect.gen(function* () {
        const web = yield* host.spec("web", 0)
        yield* daemon(Effect.flatMap(host.boot(web), host.sleep))
        const record = yield* daemon(
          Effect.gen(function* () {
            const woken = yield* host.wake(web)
            yield* host.remembers(woken)
            return woken.record
          })
        )
        yield* daemon(
          Effect.gen(function* () {
            const adopted = Option.getOrThrow(yield* hypervisor((service) => service.adopt(record)))
            yield* host.sleep(adopted)
            const woken = yield* host.wake(web)
            yield* host.remembers(woken)
            yield* host.kill(woken)
          })
        )
      })
    )

    test("the program of a guest that was frozen waits for the host after the wake, and then finds the time right", (host) =>
      Effect.gen(function* () {
        const web = yield* host.asleep("web")
        yield* Effect.sleep(2_000)
        const woken = yield* host.wakeFrozen(web)
        assert.strictEqual(yield* host.phase(woken), "frozen")
        const error = yield* host.talk(woken, (session) =>
          Effect.andThen(session.thaw, host.clockError(woken, session))
        )
        assert.closeTo(error, 0, 1_000)
        yield* host.kill(woken)
      }))

    test("a guest that is frozen thaws by itself when its lease is over, or when it is told", (host) =>
      Effect.gen(function* () {
        const machine = yield* host.boot(yield* host.spec("web", 0))
        yield* host.freeze(machine)
        assert.strictEqual(yield* host.phase(machine), "frozen")
        yield* Effect.flip(host.freeze(machine))
        yield* host.thaw(machine)
        assert.strictEqual(yield* host.phase(machine), "running")
        yield* host.thaw(machine)
        yield* host.talk(machine, (session) => session.freeze(3_000))
        while ((yield* host.phase(machine)) !== "running") yield* Effect.sleep(50)
        yield* host.kill(machine)
      }))

    test("a snapshot is used once", (host) =>
      Effect.gen(function* () {
        const web = yield* host.asleep("web")
        const woken = yield* host.wake(web)
        yield* host.kill(woken)
        const error = yield* Effect.flip(host.wake(web))
        assert.instanceOf(error, SnapshotUnusable)
        assert.strictEqual((error as SnapshotUnusable).kind, "missing")
      }))

    test("a snapshot of which one bit has changed is never woken, wherever that is; it goes, and nothing else stays", (host) =>
      Effect.gen(function* () {
        const web = yield* host.spec("web", 0)
        let count = 1
        for (let index = 0; index < count; index++) {
          yield* host.asleep("web")
          const all = yield* host.flips(host.place("web"))
          count = all.length
          const [what, flip] = all[index] ?? ["nothing", Effect.void]
          yield* flip
          const error = yield* Effect.flip(host.wake(web))
          assert.instanceOf(error, SnapshotUnusable, what)
          assert.strictEqual((error as SnapshotUnusable).kind, "damaged", what)
          assert.deepStrictEqual(yield* host.traces, [], what)
        }
      }))

    test("a snapshot that was made under something else is not woken, and told by what", (host) =>
      Effect.gen(function* () {
        const changes: ReadonlyArray<
          readonly [RegExp, (spec: MachineSpec) => MachineSpec, Partial<SnapshotPlace>]
        > = [
          [/deployment dep-1, and this is dep-2/u, (web) => web, { deploymentId: "dep-2" }],
          [/guest image/u, (web) => ({ ...web, image: { ...web.image, version: "another" } }), {}],
          [/slot 0, and this is 1/u, (web) => ({ ...web, slot: 1 }), {}],
          [/size of memory/u, (web) => ({ ...web, memoryMib: web.memoryMib + 64 }), {}]
        ]
        for (const [reason, change, elsewhere] of changes) {
          const web = yield* host.asleep("web")
          const error = yield* Effect.flip(
            hypervisor((service) =>
              service.wake(change(host.again(web)), { ...host.place("web"), ...elsewhere })
            )
          )
          assert.instanceOf(error, SnapshotUnusable)
          assert.strictEqual((error as SnapshotUnusable).kind, "foreign")
          assert.match(error.message, reason)
          assert.include(error.message, "web")
          assert.deepStrictEqual(yield* host.traces, [])
        }
      }))

    test("a sleep that fails says why, lets the machine run on, and leaves no snapshot; the next one is as good as any", (host) =>
      Effect.gen(function* () {
        const web = yield* host.spec("web", 0)
        const machine = yield* host.boot(web)
        const { place, reason, repair } = host.spoilSleep(web)
        yield* host.freeze(machine)
        const error = yield* Effect.flip(hypervisor((service) => service.sleep(machine, place)))
        assert.instanceOf(error, SleepFailed)
        assert.isTrue(error.resumed)
        assert.match(error.message, reason)
        yield* host.thaw(machine)
        yield* host.remembers(machine)
        yield* repair
        assert.isTrue(Option.isNone(yield* host.snapshot(web)))

        yield* host.sleep(machine)
        const woken = yield* host.wake(web)
        yield* host.remembers(woken)
        yield* host.kill(woken)
      }))

    test("a sleep whose VMM dies fails, and leaves no snapshot", (host) =>
      Effect.gen(function* () {
        const web = yield* host.spec("web", 0)
        const machine = yield* host.boot(web)
        const early = host.moments("sleep", web)[0] ?? Effect.void
        const sleeping = yield* Effect.forkChild(
          Effect.exit(hypervisor((service) => service.sleep(machine, host.place("web")))),
          { startImmediately: true }
        )
        yield* early
        yield* host.strike(machine)
        const exit = yield* Fiber.join(sleeping)
        assert.strictEqual(exit._tag, "Failure")
        yield* host.kill(machine)
        assert.deepStrictEqual(yield* host.traces, [])
      }))

    test("a sleep that is interrupted has happened or not, whenever that is", (host) =>
      Effect.gen(function* () {
        const web = yield* host.spec("web", 0)
        let machine = yield* host.boot(web)
        const count = host.moments("sleep", web).length
        for (let index = 0; index < count; index++) {
          const current = machine
          yield* host.freeze(current)
          const fiber = yield* Effect.forkChild(
            hypervisor((service) => service.sleep(current, host.place("web"))),
            { startImmediately: true }
          )
          yield* host.moments("sleep", web)[index] ?? Effect.void
          yield* Fiber.interrupt(fiber)
          if (yield* host.runs(current.record.machineId)) {
            assert.isTrue(Option.isNone(yield* host.snapshot(web)), `moment ${index}`)
            yield* host.thaw(current)
          } else {
            assert.isTrue(Option.isSome(yield* host.snapshot(web)), `moment ${index}`)
            machine = yield* host.wake(web)
          }
          yield* host.remembers(machine)
        }
        yield* host.kill(machine)
        assert.deepStrictEqual(yield* host.traces, [])
      }))

    test("a wake that is interrupted has happened or not, whenever that is", (host) =>
      Effect.gen(function* () {
        const web = yield* host.asleep("web")
        const count = host.moments("wake", web).length
        for (let index = 0; index < count; index++) {
          let up: Machine | undefined
          const fiber = yield* hypervisor((service) => service.wake(host.again(web), host.place("web"))).pipe(
            Effect.tap((machine) =>
              Effect.sync(() => {
                up = machine
              })
            ),
            Effect.forkChild({ startImmediately: true })
          )
          yield* host.moments("wake", web)[index] ?? Effect.void
          yield* Fiber.interrupt(fiber)
          if (up === undefined) {
            if (Option.isSome(yield* host.snapshot(web))) continue
            // It happened as it was interrupted, and nobody heard of it: the machine runs, and is found.
            const found = yield* hypervisor((service) => service.sweep([]))
            assert.strictEqual(found.length, 1, `moment ${index}`)
            yield* Effect.flatMap(host.boot(web), host.sleep)
          } else {
            const machine: Machine = up
            yield* host.thaw(machine)
            yield* host.remembers(machine)
            yield* host.sleep(machine)
          }
        }
        const woken = yield* host.wake(web)
        yield* host.remembers(woken)
        yield* host.kill(woken)
        assert.deepStrictEqual(yield* host.traces, [])
      }))

    test("a wake whose VMM cannot start keeps the snapshot", (host) =>
      Effect.gen(function* () {
        const web = yield* host.asleep("web")
        const repair = yield* host.spoilWake(web)
        const error = yield* Effect.flip(host.wake(web))
        assert.instanceOf(error, WakeFailed)
        assert.isTrue((error as WakeFailed).kept)
        yield* repair
        const woken = yield* host.wake(web)
        yield* host.remembers(woken)
        yield* host.kill(woken)
      }))

    test("a snapshot can be discarded, and so can one that is not there", (host) =>
      Effect.gen(function* () {
        const web = yield* host.asleep("web")
        const discard = hypervisor((service) => service.discard(host.place("web").directory))
        yield* discard
        assert.isTrue(Option.isNone(yield* host.snapshot(web)))
        assert.deepStrictEqual(yield* host.traces, [])
        yield* discard
      }))

    test("what is no snapshot of an app that is kept is swept", (host) =>
      Effect.gen(function* () {
        const web = yield* host.spec("web", 0)
        yield* Effect.flatMap(host.boot(web), host.sleep)
        yield* host.asleep("shop", 1)
        const root = host.place("web").directory.replace(/\/[^/]+$/u, "")
        const sweep = (keep: ReadonlyArray<string>) =>
          hypervisor((service) => service.sweepSnapshots(root, keep))
        assert.deepStrictEqual(yield* sweep(["web", "news"]), ["shop"])
        yield* Effect.flatMap(host.wake(web), host.kill)
        assert.deepStrictEqual(yield* sweep([]), [])
        assert.deepStrictEqual(yield* host.traces, [])
      }))
  })
