/**
 * One machine in memory for the testing layers of `Hypervisor`, `Guest`, `Network` and `HealthProber`.
 *
 * The world outlives the layers built over it: a test plays a daemon's restart by closing one layer's scope and
 * building another over the same world, and a daemon's violent death with `crash` before the close. Time is
 * the Clock's, so everything here stands still under a TestClock until the test moves it.
 */
import { type Cause, Deferred, Effect, Queue, type Scope } from "effect"
import type { AppId } from "../../src/document/schema.ts"
import { slotAddresses } from "../../src/network/addresses.ts"
import type { BootSpec, GuestEvent, GuestPhase, GuestUsage, PortProbe } from "../../src/services/Guest.ts"
import type { ProbeResult } from "../../src/services/HealthProber.ts"
import type {
  MachineExit,
  MachineRecord,
  MachineSpec,
  SnapshotRecord
} from "../../src/services/Hypervisor.ts"

/**
 * What can be scripted. `booted` is the moment in `boot` at which the VMM exists and the caller does not know; `sleep` the one
 * at which the machine is paused and its snapshot half-written, `slept` the one behind the commit, with the VMM still there
 * (it cannot fail or be interrupted); `woken` the one at which the memory is restored and nothing has run.
 */
export type FakeStep =
  | "boot"
  | "booted"
  | "adopt"
  | "kill"
  | "sweep"
  | "connect"
  | "hand-over"
  | "probe"
  | "usage"
  | "shutdown"
  | "freeze"
  | "thaw"
  | "freeze-volume"
  | "thaw-volume"
  | "sleep"
  | "slept"
  | "wake"
  | "woken"
  | "attach"
  | "detach"
  | "http"

/** What a step does before it does its work. */
export type FakeBehaviour =
  /** Fails with this reason, in the service's own error. */
  | { readonly fail: string }
  /** Waits for the Deferred, then goes on. */
  | { readonly stallUntil: Deferred.Deferred<void> }
  /** Sleeps, then goes on. */
  | { readonly delayMs: number }
  /** Interrupts the fiber that took the step. */
  | { readonly interrupt: true }

/** One step that was taken. */
export interface FakeCall {
  readonly step: FakeStep
  /** The app's id; for `attach` and `detach` `slot <n>`; for `sweep` `host`. */
  readonly subject: string
  readonly machineId?: string
  /** The spec of a `boot` or `wake`. */
  readonly machine?: MachineSpec
  /** The spec of a `hand-over`. */
  readonly bootSpec?: BootSpec
  /** The port of a `probe` or `http`, the ports of an `attach`. */
  readonly ports?: ReadonlyArray<number>
}

/** Something that a guest does by itself, `afterMs` after what it did before. */
export type GuestAct = { readonly afterMs?: number } & (
  | { readonly say: GuestEvent }
  | { readonly exit: MachineExit }
  /** Whether the app's port accepts connections from now on. */
  | { readonly listen: boolean }
)

/** How an app's guests behave. */
export interface GuestScript {
  /** From the boot to PID 1's hello; `never` for a boot that hangs. */
  readonly helloAfterMs: number | "never"
  /** What follows once the guest has its boot spec. */
  readonly life: ReadonlyArray<GuestAct>
  /** From the request to shut down to the end of the VMM. */
  readonly shutdownAfterMs: number | "never"
}

/** A guest that is up at once, starts its program, listens, and ends when it is asked to. */
export const wellBehaved: GuestScript = {
  helloAfterMs: 0,
  life: [{ say: { kind: "started" } }, { listen: true }],
  shutdownAfterMs: 0
}

/** A guest whose program does nothing: it is busy for a hundredth of the time since its boot. */
const quietUsage = (spec: MachineSpec, upMs: number): GuestUsage => ({
  volumeTotalBytes: 60 * 2 ** 20,
  volumeUsedBytes: 2 ** 20,
  memoryTotalBytes: spec.memoryMib * 2 ** 20,
  memoryUsedBytes: 32 * 2 ** 20,
  cpuTotalTicks: Math.floor(upMs / 10) * spec.vcpuCount,
  cpuBusyTicks: Math.floor(upMs / 1000),
  receivedBytes: 0,
  sentBytes: 0
})

/** A microVM of the fake host. The layers change it; tests read it. */
export interface FakeMachine {
  readonly record: MachineRecord
  readonly spec: MachineSpec
  readonly script: GuestScript
  /** ms since 1970. */
  readonly bootedAt: number
  readonly hello: Deferred.Deferred<void>
  readonly ended: Deferred.Deferred<MachineExit>
  phase: Exclude<GuestPhase, "frozen">
  /** One object a freeze; undefined while the program runs. */
  frozen: object | undefined
  /** The same of its volume's filesystem. */
  volumeFrozen?: object | undefined
  /** Paused by a sleep that has not come to its end. */
  paused: boolean
  /** How far the guest's clock is from the host's, in ms. */
  clockOffsetMs: number
  /** What the program keeps in memory; for tests. */
  readonly memory: Map<string, unknown>
  listening: boolean
  bootSpec: BootSpec | undefined
  residentBytes: number
  /** Its volume gives errors. */
  waitsForVolume: boolean
  /** Events that no conversation has taken yet. */
  backlog: Array<GuestEvent>
  session: Queue.Queue<GuestEvent, Cause.Done> | undefined
}

/** A snapshot on the fake host's disk. */
export interface FakeSnapshot {
  readonly record: SnapshotRecord
  readonly sleeper: FakeMachine
  /** Not a snapshot before it is committed. */
  committed: boolean
  /** What is damaged of it. */
  damage: "record" | "memory" | "state" | undefined
}

export interface FakeHost {
  /** Every step taken, in order. */
  readonly calls: ReadonlyArray<FakeCall>
  /** The steps taken of one kind, of one subject or of all. */
  readonly callsOf: (step: FakeStep, subject?: string) => ReadonlyArray<FakeCall>
  /** Waits until the step has been taken `count` times (1 unless told). */
  readonly awaitCall: (step: FakeStep, subject: string, count?: number) => Effect.Effect<void>
  /** The next times that the step is taken for the subject (`*`: any), it behaves like this, one behaviour a time. */
  readonly next: (step: FakeStep, subject: string, ...behaviours: ReadonlyArray<FakeBehaviour>) => void
  /** Each time that no `next` is left, the step behaves like this; undefined: well. */
  readonly always: (step: FakeStep, subject: string, behaviour: FakeBehaviour | undefined) => void

  /** How guests of the app behave that are booted from now on: a well-behaved one with these changes. */
  readonly script: (appId: string, script: Partial<GuestScript>) => void
  /** What a connection inside the app's guests comes to; undefined: what its listening says. */
  readonly portAnswer: (appId: string, answer: PortProbe | undefined) => void
  /** What the app's guests say of what they use; undefined: what a guest that does nothing uses. */
  readonly usageAnswer: (appId: string, answer: Partial<GuestUsage> | undefined) => void
  /** What an HTTP probe of the app comes to; undefined: 200 while the guest listens. */
  readonly httpAnswer: (appId: string, answer: ProbeResult | undefined) => void

  /** The microVMs that run now. */
  readonly machines: ReadonlyArray<FakeMachine>
  /** The app's microVM that runs now. More than one is a defect, and dies. */
  readonly machineOf: (appId: string) => FakeMachine | undefined
  /** The guest of the app says something by itself. */
  readonly say: (appId: string, event: GuestEvent) => Effect.Effect<void>
  /** The app's port accepts connections from now on, or no more. */
  readonly listen: (appId: string, listening: boolean) => void
  /** Ends the app's VMM from outside of the daemon. */
  readonly end: (appId: string, exit: MachineExit) => Effect.Effect<void>
  /** What lies in `snapshot_dir`, by directory. */
  readonly snapshots: Map<string, FakeSnapshot>
  /** Links that are attached: the slot's guest ports. */
  readonly links: ReadonlyMap<number, ReadonlyArray<number>>
  /** Puts a running microVM there that no daemon has booted through a layer. */
  readonly stranger: (spec: MachineSpec) => Effect.Effect<MachineRecord>

  /**
   * The daemon dies at once: layers built until now clean nothing up any more, whatever scope is closed after.
   * Layers built later are the next daemon's.
   */
  readonly crash: Effect.Effect<void>

  /** For the layers of this folder. */
  readonly internal: {
    /** Records the call, then behaves as scripted. */
    readonly take: <E>(call: FakeCall, failure: (reason: string) => E) => Effect.Effect<void, E>
    /** With `sleeper` the machine wakes as that one fell asleep. */
    readonly start: (spec: MachineSpec, sleeper?: FakeMachine) => Effect.Effect<FakeMachine>
    readonly finish: (machine: FakeMachine, exit: MachineExit) => Effect.Effect<void>
    readonly live: (machine: FakeMachine) => Effect.Effect<void>
    readonly emit: (machine: FakeMachine, event: GuestEvent) => Effect.Effect<void>
    readonly background: (effect: Effect.Effect<void>) => Effect.Effect<void>
    readonly byReach: (host: string) => FakeMachine | undefined
    readonly portAnswers: ReadonlyMap<string, PortProbe>
    readonly httpAnswers: ReadonlyMap<string, ProbeResult>
    readonly usageOf: (machine: FakeMachine) => Effect.Effect<GuestUsage>
    readonly setLink: (slot: number, ports: ReadonlyArray<number> | undefined) => void
    /** Counts the conversations of the world, from 1. */
    readonly nextSession: () => number
    /** Which daemon's layers are being built now; a layer of an earlier one has died. */
    readonly epoch: () => number
  }
}

/** The slot whose guests are reached at 127.201.x.y: the inverse of `slotAddresses(slot).loopback`. */
const slotOfLoopback = (address: string): number => {
  const [, , high = 0, low = 0] = address.split(".").map(Number)
  return (high * 256 + low - 2) / 4
}

/** What `process.hostBootId` of the fake's records is. */
export const FAKE_HOST_BOOT_ID = "6e1b5e9a-0000-4000-8000-000000000000"

const now = Effect.clockWith((clock) => clock.currentTimeMillis)

const phaseAfter = (phase: FakeMachine["phase"], event: GuestEvent): FakeMachine["phase"] =>
  event.kind === "started"
    ? "running"
    : event.kind === "restarting"
      ? "backing-off"
      : event.kind === "failed"
        ? "failed"
        : phase

/** A machine without microVMs. What its guests do by themselves ends with the scope. */
export const makeFakeHost: Effect.Effect<FakeHost, never, Scope.Scope> = Effect.gen(function* () {
  const scope = yield* Effect.scope
  const calls: Array<FakeCall> = []
  const waiting: Array<{ readonly enough: () => boolean; readonly done: Deferred.Deferred<void> }> = []
  const queued = new Map<string, Array<FakeBehaviour>>()
  const standing = new Map<string, FakeBehaviour>()
  const scripts = new Map<string, GuestScript>()
  const portAnswers = new Map<string, PortProbe>()
  const httpAnswers = new Map<string, ProbeResult>()
  const usageAnswers = new Map<string, Partial<GuestUsage>>()
  const machines: Array<FakeMachine> = []
  /** The same microVMs by slot: a test of a full host asks for them often. */
  const bySlot = new Map<number, FakeMachine>()
  const links = new Map<number, ReadonlyArray<number>>()
  const snapshots = new Map<string, FakeSnapshot>()
  let nextPid = 1000
  let epoch = 0
  let sessions = 0

  const key = (step: FakeStep, subject: string) => `${step} ${subject}`
  const callsOf = (step: FakeStep, subject?: string) =>
    calls.filter((call) => call.step === step && (subject === undefined || call.subject === subject))

  const set = <K, V>(map: Map<K, V>, at: K, value: V | undefined) => {
    if (value === undefined) map.delete(at)
    else map.set(at, value)
  }

  const behaviourOf = (step: FakeStep, subject: string): FakeBehaviour | undefined => {
    for (const name of [subject, "*"]) {
      const behaviour = queued.get(key(step, name))?.shift()
      if (behaviour !== undefined) return behaviour
    }
    return standing.get(key(step, subject)) ?? standing.get(key(step, "*"))
  }

  const behave = <E>(
    behaviour: FakeBehaviour | undefined,
    failure: (reason: string) => E
  ): Effect.Effect<void, E> => {
    if (behaviour === undefined) return Effect.void
    if ("fail" in behaviour) return Effect.fail(failure(behaviour.fail))
    if ("stallUntil" in behaviour) return Deferred.await(behaviour.stallUntil)
    if ("delayMs" in behaviour) return Effect.sleep(behaviour.delayMs)
    return Effect.interrupt
  }

  const take = <E>(call: FakeCall, failure: (reason: string) => E) =>
    Effect.suspend(() => {
      calls.push(call)
      for (const waiter of waiting) {
        if (waiter.enough()) Deferred.doneUnsafe(waiter.done, Effect.void)
      }
      return behave(behaviourOf(call.step, call.subject), failure)
    })

  const awaitCall = (step: FakeStep, subject: string, count = 1) =>
    Effect.gen(function* () {
      const enough = () => callsOf(step, subject).length >= count
      if (enough()) return
      const done = yield* Deferred.make<void>()
      waiting.push({ enough, done })
      yield* Deferred.await(done)
    })

  const background = (effect: Effect.Effect<void>) => Effect.asVoid(Effect.forkIn(effect, scope))

  const machineOf = (appId: string) => {
    const found = machines.filter((machine) => machine.spec.appId === appId)
    if (found.length > 1) throw new Error(`${found.length} microVMs of ${appId} run side by side`)
    return found[0]
  }

  const emit = (machine: FakeMachine, event: GuestEvent) =>
    Effect.suspend(() => {
      machine.phase = phaseAfter(machine.phase, event)
      if (event.kind === "restarting" || event.kind === "failed") machine.listening = false
      if (machine.session !== undefined) return Effect.asVoid(Queue.offer(machine.session, event))
      machine.backlog.push(event)
      return Effect.void
    })

  const finish = (machine: FakeMachine, exit: MachineExit) =>
    Effect.gen(function* () {
      const index = machines.indexOf(machine)
      if (index < 0) return
      machines.splice(index, 1)
      bySlot.delete(machine.spec.slot)
      machine.listening = false
      yield* Deferred.succeed(machine.ended, exit)
      if (machine.session !== undefined) yield* Queue.end(machine.session)
    })

  const runs = (machine: FakeMachine) => bySlot.get(machine.spec.slot) === machine

  const live = (machine: FakeMachine) =>
    background(
      Effect.gen(function* () {
        for (const act of machine.script.life) {
          if (act.afterMs !== undefined) yield* Effect.sleep(act.afterMs)
          if (!runs(machine) || machine.phase === "stopping") return
          if ("say" in act) yield* emit(machine, act.say)
          else if ("listen" in act) machine.listening = act.listen
          else yield* finish(machine, act.exit)
        }
      })
    )

  const start = (spec: MachineSpec, sleeper?: FakeMachine) =>
    Effect.gen(function* () {
      const holder = bySlot.get(spec.slot)
      if (holder !== undefined) {
        return yield* Effect.die(new Error(`slot ${spec.slot} is held by a microVM of ${holder.spec.appId}`))
      }
      const pid = nextPid++
      const machine: FakeMachine = {
        record: {
          machineId: spec.machineId,
          appId: spec.appId,
          slot: spec.slot,
          guestImageVersion: spec.image.version,
          process: { pid, hostBootId: FAKE_HOST_BOOT_ID, startTime: pid * 7 }
        },
        spec,
        script: scripts.get(spec.appId) ?? wellBehaved,
        bootedAt: yield* now,
        hello: yield* Deferred.make<void>(),
        ended: yield* Deferred.make<MachineExit>(),
        phase: sleeper?.phase ?? "awaiting-spec",
        frozen: sleeper?.frozen,
        paused: false,
        clockOffsetMs: sleeper?.clockOffsetMs ?? 0,
        memory: structuredClone(sleeper?.memory ?? new Map()),
        listening: sleeper?.listening ?? false,
        bootSpec: sleeper?.bootSpec,
        residentBytes: 64 * 1024 * 1024,
        waitsForVolume: false,
        backlog: [...(sleeper?.backlog ?? [])],
        session: undefined
      }
      machines.push(machine)
      bySlot.set(spec.slot, machine)
      const after = sleeper === undefined ? machine.script.helloAfterMs : 0
      if (after === 0) yield* Deferred.succeed(machine.hello, undefined)
      else if (after !== "never") {
        yield* background(
          Effect.sleep(after).pipe(Effect.andThen(Effect.asVoid(Deferred.succeed(machine.hello, undefined))))
        )
      }
      return machine
    })

  const existing = (appId: string) =>
    Effect.suspend(() => {
      const machine = machineOf(appId)
      return machine === undefined
        ? Effect.die(new Error(`no microVM of ${appId} runs on the fake host`))
        : Effect.succeed(machine)
    })

  return {
    calls,
    callsOf,
    awaitCall,
    next: (step, subject, ...behaviours) => {
      const at = key(step, subject)
      queued.set(at, [...(queued.get(at) ?? []), ...behaviours])
    },
    always: (step, subject, behaviour) => set(standing, key(step, subject), behaviour),
    script: (appId, script) => scripts.set(appId, { ...wellBehaved, ...script }),
    portAnswer: (appId, answer) => set(portAnswers, appId, answer),
    usageAnswer: (appId, answer) => set(usageAnswers, appId, answer),
    httpAnswer: (appId, answer) => set(httpAnswers, appId, answer),
    machines,
    machineOf,
    say: (appId, event) => Effect.flatMap(existing(appId), (machine) => emit(machine, event)),
    listen: (appId, listening) => {
      const machine = machineOf(appId)
      if (machine === undefined) throw new Error(`no microVM of ${appId} runs on the fake host`)
      machine.listening = listening
    },
    end: (appId, exit) => Effect.flatMap(existing(appId), (machine) => finish(machine, exit)),
    snapshots,
    links,
    stranger: (spec) => Effect.map(start(spec), (machine) => machine.record),
    crash: Effect.sync(() => {
      epoch++
    }),
    internal: {
      take,
      start,
      finish,
      live,
      emit,
      background,
      byReach: (host) => bySlot.get(slotOfLoopback(host)),
      portAnswers,
      httpAnswers,
      usageOf: (machine) =>
        Effect.map(now, (at) => ({
          ...quietUsage(machine.spec, at - machine.bootedAt),
          ...(machine.phase === "awaiting-spec" ? { volumeTotalBytes: 0, volumeUsedBytes: 0 } : {}),
          ...usageAnswers.get(machine.spec.appId)
        })),
      setLink: (slot, ports) => set(links, slot, ports),
      nextSession: () => ++sessions,
      epoch: () => epoch
    }
  }
})

/** A spec that the fake host boots, for tests that care about none of its fields but these. */
export const fakeMachineSpec = (appId: string, slot: number, machineId: string): MachineSpec => {
  const addresses = slotAddresses(slot)
  return {
    machineId,
    appId: appId as AppId,
    slot,
    vcpuCount: 1,
    memoryMib: 128,
    image: { version: "fake", kernel: "/fake/kernel", initramfs: "/fake/initramfs", base: "/fake/base" },
    layers: [],
    volume: { kind: "file", path: `/fake/volumes/${appId}` },
    link: {
      kind: "user",
      mac: addresses.mac,
      guestAddress: addresses.guest,
      hostAddress: addresses.host,
      prefixLength: 30,
      ports: [3000]
    }
  }
}
