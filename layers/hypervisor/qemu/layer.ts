/** microVMs by QEMU's `microvm` machine: with KVM where it can be used, else with QEMU's own translator. */
import { existsSync, readFileSync } from "node:fs"
import { Deferred, Effect, Exit, FileSystem, Layer, Option, Scope } from "effect"
import { GuestImage } from "../../../src/services/GuestImage.ts"
import {
  BootFailed,
  Hypervisor,
  HypervisorError,
  type Machine,
  type MachineRecord,
  type MachineSpec
} from "../../../src/services/Hypervisor.ts"
import { chooseAccelerator, guestView, run } from "./accelerator.ts"
import { type Attachment, attach, letRun, runState } from "./attachment.ts"
import { commandLine } from "./command-line.ts"
import { makeConfinement } from "./confinement/confinement.ts"
import { explainDeath, notInstalled } from "./explain.ts"
import { findVmm, isAlive, killAndWait, listVmms, type ProcessIdentity } from "./process.ts"
import { QmpError } from "./qmp.ts"
import {
  checkRuntimeDir,
  createRunDirectory,
  mayHaveRun,
  notedSnapshot,
  noteSnapshot,
  ownerOf,
  type RuntimeDirTooLong,
  readSpec,
  removeRunDirectory,
  runDirectory,
  runRoot
} from "./run-directory.ts"
import { makeSleeping } from "./sleeping.ts"
import { discardSnapshot, putBack, snapshotFiles } from "./snapshot/files.ts"
import { resume } from "./snapshot/save.ts"
import { type Child, spawnVmm } from "./spawn.ts"

export interface QemuOptions {
  /** QEMU's program: a path, or a name to be found on PATH. */
  readonly binary: string
  /** `paths.runtime_dir`: where the sockets of the VMMs lie. */
  readonly runtimeDir: string
}

/** From the start of QEMU to its control socket's first answer; a crowded machine is slow. */
const START_LIMIT_MS = 60_000
/** How long the stderr of a QEMU that has hung up is waited for. */
const LAST_WORDS_MS = 2_000
/** What a process may take to die of SIGKILL. */
const KILL_LIMIT_MS = 20_000

const isQmpError = (error: unknown): error is QmpError => error instanceof QmpError

/** QEMU did not come up: why. */
export interface StartFailed {
  readonly notStarted: string
}

/** How to bring up a machine that was just started. */
export interface BringUp<E> {
  /** The snapshot that the machine wakes from. */
  readonly sleeper?: {
    readonly directory: string
    readonly memory: string
    /** Done when the VMM is there, so that an earlier daemon's is found by the next. */
    readonly spawned: Deferred.Deferred<void>
  }
  readonly ready: (attachment: Attachment, child: Child) => Effect.Effect<void, E | QmpError>
  readonly go: (attachment: Attachment) => Effect.Effect<void, E | QmpError>
}

export type Start = <E = never>(
  spec: MachineSpec,
  bringUp: BringUp<E>
) => Effect.Effect<Attachment, StartFailed | E, Scope.Scope>

const recordOf = (spec: MachineSpec): MachineRecord => ({
  machineId: spec.machineId,
  appId: spec.appId,
  slot: spec.slot,
  guestImageVersion: spec.image.version
})

const versionOf = Effect.fnUntraced(function* (binary: string, accelerator: string) {
  const printed = yield* run(binary, ["--version"]).pipe(
    Effect.mapError(
      (reason) =>
        new HypervisorError({
          operation: "be asked its version",
          reason: /ENOENT/u.test(reason) ? notInstalled(binary) : `${binary}: ${reason}`
        })
    )
  )
  const version = printed.match(/version (\d+(?:\.\d+)*)/u)?.[1] ?? "of an unknown version"
  return `qemu ${version} (${accelerator.toUpperCase()})`
})

/** How a child ended, in words. */
const endOf = (child: Child) =>
  Deferred.await(child.ended).pipe(
    Effect.map((end) =>
      explainDeath(
        child.stderr.text(),
        end.signal === null ? `ended with code ${end.code}` : `was ended by ${end.signal}`
      )
    )
  )

/** Builds only where `runtime_dir` leaves room for the sockets and QEMU can be run. */
export const layerQemu = (
  options: QemuOptions
): Layer.Layer<Hypervisor, HypervisorError | RuntimeDirTooLong, GuestImage | FileSystem.FileSystem> =>
  Layer.effect(
    Hypervisor,
    Effect.gen(function* () {
      const { binary, runtimeDir } = options
      const fs = yield* FileSystem.FileSystem
      const image = yield* GuestImage
      const failed = (operation: string) => (error: { readonly message: string }) =>
        new HypervisorError({ operation, reason: error.message })

      yield* checkRuntimeDir(runtimeDir)
      yield* fs
        .makeDirectory(runRoot(runtimeDir), { recursive: true, mode: 0o700 })
        .pipe(Effect.mapError(failed("make its runtime directory")))
      const accelerator = yield* chooseAccelerator(runtimeDir, image.tscProbe)
      const emulates = accelerator.kind === "tcg"
      const version = yield* versionOf(binary, accelerator.kind)

      const confinement = yield* makeConfinement({ runtimeDir, binary, jail: image.jail, accelerator })

      /** Removes what a machine has left, once its VMM has ended. */
      const clean = (slot: number, machineId: string) => {
        const directory = runDirectory(runtimeDir, slot)
        return removeRunDirectory(directory, machineId, confinement.release(slot, directory, machineId)).pipe(
          Effect.provideService(FileSystem.FileSystem, fs)
        )
      }

      /** A run directory for the machine; refuses to take one from a VMM that lives. */
      const prepare = Effect.fnUntraced(function* (
        spec: MachineSpec,
        sleeper: { readonly directory: string } | undefined
      ) {
        const directory = runDirectory(runtimeDir, spec.slot)
        if (existsSync(directory.path)) {
          const holder = listVmms(runtimeDir).find((vmm) => vmm.slot === spec.slot)
          if (holder !== undefined) {
            return yield* Effect.fail({
              message: `slot ${spec.slot} is held by microVM ${holder.machineId} (process ${holder.process.pid})`
            })
          }
        }
        yield* createRunDirectory(directory, spec)
        if (sleeper !== undefined) {
          yield* noteSnapshot(directory, sleeper.directory).pipe(
            Effect.onError(() => Effect.ignore(clean(spec.slot, spec.machineId)))
          )
        }
        return directory
      })

      const end = (process: ProcessIdentity) =>
        killAndWait(process, KILL_LIMIT_MS).pipe(Effect.mapError(({ reason }) => ({ message: reason })))

      /**
       * QEMU's user network has room for one connection that it has not accepted yet: callers who come at once would wait for
       * seconds. It is no reason to end a machine where that cannot be changed: a daemon that is not root may not be let.
       */
      const widen = (spec: MachineSpec, process: ProcessIdentity) =>
        spec.link.kind === "user" && spec.link.ports.length > 0
          ? Effect.ignore(run(image.jail, ["--widen", String(process.pid)]))
          : Effect.void

      /** What this daemon holds of the machines that it has shown. */
      const attachments = new WeakMap<Machine, Attachment>()
      const shown = (attachment: Attachment) => {
        attachments.set(attachment.machine, attachment)
        return attachment.machine
      }

      /**
       * Starts QEMU and brings it up: `ready` may be interrupted, `go` may not. Whatever fails or is interrupted leaves no
       * process, socket or file.
       */
      const start: Start = (spec, { sleeper, ready, go }) =>
        Effect.uninterruptibleMask((restore) =>
          Effect.gen(function* () {
            const startFailed = (reason: string): StartFailed => ({ notStarted: reason })
            const directory = yield* prepare(spec, sleeper).pipe(
              Effect.mapError((error) => startFailed(error.message))
            )
            const scope = yield* Scope.fork(yield* Effect.scope)

            const undo = (child: Child | undefined) =>
              Scope.close(scope, Exit.void).pipe(
                Effect.andThen(child?.process === undefined ? Effect.void : end(child.process)),
                Effect.andThen(clean(spec.slot, spec.machineId)),
                Effect.catch((error) =>
                  Effect.logError(`what a failed boot of ${spec.appId} left stays: ${error.message}`)
                )
              )

            const line = commandLine(spec, directory, accelerator, sleeper)
            const child = yield* confinement.prepare(spec, directory, sleeper?.memory, line).pipe(
              Effect.mapError(({ message }) => message),
              Effect.flatMap(({ program, args }) =>
                spawnVmm(program, args, { stdin: sleeper !== undefined })
              ),
              Effect.mapError(startFailed),
              Effect.onError(() => undo(undefined))
            )
            if (sleeper !== undefined) yield* Deferred.succeed(sleeper.spawned, undefined)
            const died = endOf(child)
            const bringUp = Effect.suspend(() =>
              child.process === undefined
                ? Effect.never
                : attach(
                    { ...recordOf(spec), process: child.process },
                    directory,
                    child,
                    emulates && sleeper === undefined
                  )
            ).pipe(
              Scope.provide(scope),
              Effect.tap((attachment) =>
                Effect.all([ready(attachment, child), widen(spec, attachment.process)], {
                  concurrency: "unbounded",
                  discard: true
                })
              ),
              // A QEMU that dies at once hangs up first, and says why on stderr.
              Effect.catchIf(isQmpError, (error) =>
                Effect.raceFirst(died, Effect.succeed(error.message).pipe(Effect.delay(LAST_WORDS_MS))).pipe(
                  Effect.flatMap((reason) => Effect.fail(startFailed(reason)))
                )
              ),
              Effect.timeoutOrElse({
                duration: START_LIMIT_MS,
                orElse: () => Effect.fail(startFailed(`QEMU was not up after ${START_LIMIT_MS / 1000} s`))
              })
            )
            return yield* restore(
              Effect.raceFirst(
                bringUp,
                Effect.flatMap(died, (reason) => Effect.fail(startFailed(reason)))
              )
            ).pipe(
              Effect.tap(go),
              Effect.catchIf(isQmpError, (error) => Effect.fail(startFailed(error.message))),
              Effect.onError(() => undo(child))
            )
          })
        )

      const boot = (spec: MachineSpec): Effect.Effect<Machine, BootFailed, Scope.Scope> =>
        start<StartFailed>(spec, {
          // what is interrupted leaves nothing: so all of it is before `go`
          ready: ({ qmp }) =>
            confinement.limitTime(spec.slot, spec.vcpuCount).pipe(
              Effect.mapError(({ message }): StartFailed => ({ notStarted: message })),
              Effect.andThen(letRun(qmp))
            ),
          go: () => Effect.void
        }).pipe(
          Effect.map(shown),
          Effect.mapError(({ notStarted }) => new BootFailed({ appId: spec.appId, reason: notStarted }))
        )

      /**
       * What an earlier daemon was doing to the machine when it died is undone: the machine runs. False: it has never run, and
       * what it was to be woken from is as good as before.
       */
      const settle = ({ machine, qmp, directory }: Attachment) =>
        Effect.gen(function* () {
          const place = yield* notedSnapshot(directory)
          const spec = yield* readSpec(directory, machine.record.machineId)
          if (spec !== undefined) yield* confinement.limitTime(spec.slot, spec.vcpuCount)
          if ((yield* runState(qmp)) === "inmigrate") {
            if (place !== undefined) yield* putBack(snapshotFiles(place))
            return false
          }
          if (place === undefined) yield* letRun(qmp)
          else {
            yield* discardSnapshot(place)
            yield* resume(qmp)
            yield* noteSnapshot(directory, undefined)
          }
          return true
        }).pipe(Effect.provideService(FileSystem.FileSystem, fs))

      /** What a machine was woken from is as good as before, when its VMM has ended with its daemon and never ran. */
      const gone = (record: MachineRecord): Effect.Effect<Option.Option<Machine>, HypervisorError> =>
        Effect.gen(function* () {
          const directory = runDirectory(runtimeDir, record.slot)
          if ((yield* ownerOf(directory)) !== record.machineId || mayHaveRun(directory)) return
          const place = yield* notedSnapshot(directory)
          if (place !== undefined) yield* putBack(snapshotFiles(place))
        }).pipe(
          Effect.provideService(FileSystem.FileSystem, fs),
          Effect.mapError(failed(`look after what the microVM of ${record.appId} was woken from`)),
          Effect.as(Option.none())
        )

      const adopt = (
        record: MachineRecord
      ): Effect.Effect<Option.Option<Machine>, HypervisorError, Scope.Scope> =>
        Effect.gen(function* () {
          const vmm = findVmm(record, runtimeDir)
          if (vmm === undefined) return yield* gone(record)
          const scope = yield* Scope.fork(yield* Effect.scope)
          return yield* attach(
            { ...record, process: vmm.process },
            runDirectory(runtimeDir, vmm.slot),
            undefined,
            emulates
          ).pipe(
            Scope.provide(scope),
            Effect.flatMap((attachment) =>
              Effect.flatMap(settle(attachment), (runs) =>
                runs
                  ? Effect.succeed(Option.some(shown(attachment)))
                  : Scope.close(scope, Exit.void).pipe(
                      Effect.andThen(end(vmm.process)),
                      Effect.andThen(clean(vmm.slot, vmm.machineId)),
                      Effect.as(Option.none<Machine>())
                    )
              )
            ),
            Effect.onError(() => Scope.close(scope, Exit.void)),
            Effect.catch((error) =>
              isAlive(vmm.process)
                ? Effect.fail(failed(`take over the microVM of ${record.appId}`)(error))
                : gone(record)
            )
          )
        })

      const kill = (record: MachineRecord): Effect.Effect<void, HypervisorError> =>
        Effect.gen(function* () {
          const ending = failed(`end the microVM of ${record.appId}`)
          const vmm = findVmm(record, runtimeDir)
          if (vmm !== undefined) yield* end(vmm.process).pipe(Effect.mapError(ending))
          yield* clean(record.slot, record.machineId).pipe(Effect.mapError(ending))
        })

      /** Removes an entry of the directory of run directories that no VMM holds. */
      const clear = (name: string) =>
        Effect.gen(function* () {
          if (/^\d+$/u.test(name)) {
            const owner = yield* ownerOf(runDirectory(runtimeDir, Number(name)))
            if (owner !== undefined) yield* clean(Number(name), owner)
          }
          yield* fs.remove(`${runRoot(runtimeDir)}/${name}`, { recursive: true, force: true })
        }).pipe(Effect.provideService(FileSystem.FileSystem, fs))

      const sweep = (keep: ReadonlyArray<string>): Effect.Effect<ReadonlyArray<string>, HypervisorError> =>
        Effect.gen(function* () {
          const sweeping = failed("end the microVMs that belong to no app")
          const vmms = listVmms(runtimeDir)
          const strangers = vmms.filter((vmm) => !keep.includes(vmm.machineId))
          yield* Effect.forEach(strangers, (vmm) => end(vmm.process), {
            concurrency: "unbounded",
            discard: true
          }).pipe(Effect.mapError(sweeping))

          const held = new Set(vmms.filter((vmm) => keep.includes(vmm.machineId)).map((vmm) => `${vmm.slot}`))
          const left = (yield* fs.readDirectory(runRoot(runtimeDir)).pipe(Effect.mapError(sweeping))).filter(
            (name) => !held.has(name)
          )
          yield* Effect.forEach(left, clear, { discard: true }).pipe(Effect.mapError(sweeping))
          yield* Effect.forEach(
            confinement.groups().filter((slot) => !held.has(`${slot}`)),
            (slot) => confinement.release(slot, runDirectory(runtimeDir, slot), ""),
            { discard: true }
          ).pipe(Effect.provideService(FileSystem.FileSystem, fs), Effect.mapError(sweeping))
          return strangers.map((vmm) => vmm.machineId)
        })

      const sleeping = makeSleeping({
        fs,
        hypervisor: `${version}, ${guestView(accelerator, readFileSync("/proc/cpuinfo", "utf8"))}`,
        ownerOf: confinement.identity,
        limitTime: confinement.limitTime,
        attachmentOf: (machine) => attachments.get(machine),
        start,
        shown,
        end,
        clean
      })

      return Hypervisor.of({ version, boot, adopt, kill, sweep, ...sleeping })
    })
  )
