/**
 * What a broken-out guest would find: a user of its own without a single right, a filesystem that holds its own files only,
 * and bounds on memory and time. Root can have all of it, and then a VMM that cannot be confined is not started.
 */
import { mkdirSync } from "node:fs"
import { Effect, type FileSystem, type Scope } from "effect"
import { type VmmIdentity, vmmIdentity } from "../../../../src/hypervisor/identity.ts"
import { HypervisorError, type MachineSpec } from "../../../../src/services/Hypervisor.ts"
import { fileProblem } from "../../../files/problem.ts"
import { type Accelerator, TRANSLATIONS_MIB } from "../command-line.ts"
import { notInstalled } from "../explain.ts"
import { idRange } from "../identity.ts"
import { type RunDirectory, readSpec } from "../run-directory.ts"
import { type Groups, hierarchiesHere, type NoGroup, openGroups } from "./cgroup.ts"
import { jailArguments, type Surroundings, sightOf, type VmmProgram } from "./jail.ts"
import { giveTo, letRead, takeBack } from "./ownership.ts"
import { findProgram, vmmProgram } from "./program.ts"

export interface ConfinementOptions {
  readonly runtimeDir: string
  /** QEMU, as the configuration names it. */
  readonly binary: string
  /** The program of the guest image that starts VMMs. */
  readonly jail: string
  readonly accelerator: Accelerator
}

/** Why a VMM cannot be confined. */
export interface NotConfined {
  readonly message: string
}

/** A program to be started, and its arguments. */
export interface Command {
  readonly program: string
  readonly args: ReadonlyArray<string>
}

export interface Confinement {
  /**
   * Makes ready what the VMM needs, and gives what starts it with these arguments of QEMU's. `memory`: the file of the
   * snapshot that it wakes from.
   */
  readonly prepare: (
    spec: MachineSpec,
    directory: RunDirectory,
    memory: string | undefined,
    qemuArguments: ReadonlyArray<string>
  ) => Effect.Effect<Command, NotConfined>
  /**
   * Limits the VMM's time to that of as many processors as its guest has, or lifts the limit: while the guest does not run, what
   * there is to do is the host's own work, and a caller waits for it.
   */
  readonly limitTime: (slot: number, cpus: number | undefined) => Effect.Effect<void, NotConfined>
  /** Takes back what the VMM of the slot had, when it has ended: its group, and its files from its user. */
  readonly release: (
    slot: number,
    directory: RunDirectory,
    machineId: string
  ) => Effect.Effect<void, NotConfined, FileSystem.FileSystem>
  /** The user of the slot's VMM; undefined where VMMs run as the daemon's own. */
  readonly identity: (slot: number) => VmmIdentity | undefined
  /** Slots that have a group, whether or not a VMM is in it. */
  readonly groups: () => ReadonlyArray<number>
}

/**
 * What a VMM takes beyond its guest's memory, with room to spare: its own, its threads' and its disks' buffers, and what its
 * translator keeps.
 */
const OVERHEAD_MIB = { kvm: 128, tcg: 128 + TRANSLATIONS_MIB } as const

const MIB = 2 ** 20

/** The least that there is without root: QEMU's own sandbox, and no way to gain privileges. */
const unconfined = ({ binary, jail }: ConfinementOptions): Effect.Effect<Confinement, HypervisorError> =>
  Effect.gen(function* () {
    const program = findProgram(binary)
    if (program === undefined) {
      return yield* new HypervisorError({ operation: "be started", reason: notInstalled(binary) })
    }
    yield* Effect.logWarning(
      "microVMs are confined by QEMU's sandbox alone, and run as the daemon's user: only a daemon that is root can " +
        "give each a user, a filesystem and limits of its own"
    )
    return {
      prepare: (spec, directory, _memory, args) =>
        Effect.succeed({
          program: jail,
          args: jailArguments(directory, spec.link, undefined, program, args)
        }),
      limitTime: () => Effect.void,
      release: () => Effect.void,
      identity: () => undefined,
      groups: () => []
    }
  })

/** The groups, or none where this machine has none for the daemon, which the log then says. */
const groupsHere = (runtimeDir: string): Effect.Effect<Groups | undefined, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.try({ try: hierarchiesHere, catch: (error) => ({ reason: String(error) }) }).pipe(
      Effect.flatMap((hierarchies) => openGroups(runtimeDir, hierarchies)),
      Effect.catch(({ reason }) =>
        Effect.as(
          Effect.logWarning(`microVMs have no limit of memory and processor time on this machine: ${reason}`),
          undefined
        )
      )
    ),
    (groups) => Effect.sync(() => groups?.close())
  )

const confined = (options: ConfinementOptions): Effect.Effect<Confinement, HypervisorError, Scope.Scope> =>
  Effect.gen(function* () {
    const { runtimeDir, binary, jail, accelerator } = options
    const range = yield* idRange
    const program: VmmProgram = yield* vmmProgram(binary)
    const groups = yield* groupsHere(runtimeDir)
    const root = `${runtimeDir.replace(/\/+$/u, "")}/jail`
    yield* Effect.try({
      try: () => mkdirSync(root, { recursive: true, mode: 0o700 }),
      catch: (error) =>
        new HypervisorError({ operation: "confine its VMMs", reason: fileProblem(root, error).message })
    })

    const identity = (slot: number) => vmmIdentity(range.base, slot)

    const own = (path: string, change: (path: string) => void): Effect.Effect<void, NotConfined> =>
      Effect.try({
        try: () => change(path),
        catch: (error) => ({ message: `its VMM cannot be confined: ${fileProblem(path, error).message}` })
      })

    const prepare: Confinement["prepare"] = (spec, directory, memory, args) =>
      Effect.gen(function* () {
        const { slot, image, layers, volume, link } = spec
        if (slot >= range.count) {
          return yield* Effect.fail({
            message:
              `its VMM cannot be confined: slot ${slot} needs a user of its own, and the range of nibrunner in ` +
              `/etc/subuid has ${range.count}`
          })
        }
        const vmm = identity(slot)
        for (const path of [image.kernel, image.initramfs, image.base, ...layers]) yield* own(path, letRead)
        const files = [
          ...(volume.kind === "file" ? [volume.path] : []),
          ...(memory === undefined ? [] : [memory])
        ]
        for (const path of files) yield* own(path, (file) => giveTo(file, vmm))
        const memoryBytes = (spec.memoryMib + OVERHEAD_MIB[accelerator.kind]) * MIB
        const joined =
          groups === undefined ? [] : yield* groups.make(slot, memoryBytes).pipe(Effect.mapError(notLimited))
        const surroundings: Surroundings = {
          root,
          identity: vmm,
          sight: sightOf(spec, directory, program, accelerator, memory),
          groups: joined
        }
        return { program: jail, args: jailArguments(directory, link, surroundings, program.path, args) }
      })

    const limitTime: Confinement["limitTime"] = (slot, cpus) =>
      groups === undefined ? Effect.void : groups.limitTime(slot, cpus).pipe(Effect.mapError(notLimited))

    const release: Confinement["release"] = (slot, directory, machineId) =>
      Effect.gen(function* () {
        const spec = yield* readSpec(directory, machineId)
        if (spec?.volume.kind === "file") {
          const { path } = spec.volume
          yield* own(path, (file) => takeBack(file, identity(slot)))
        }
        if (groups !== undefined) yield* groups.remove(slot).pipe(Effect.catch(groupStays))
      })

    return { prepare, limitTime, release, identity, groups: () => groups?.list() ?? [] }
  })

const notLimited = ({ reason }: NoGroup): NotConfined => ({ message: `its VMM cannot be limited: ${reason}` })

/** An empty group is nobody's loss, and the slot's next VMM takes it over. */
const groupStays = ({ reason }: { readonly reason: string }) =>
  Effect.logWarning(`the cgroup of a VMM that has ended stays: ${reason}`)

/** The confinement of this host's VMMs, as far as the daemon's user goes. Fails where root could not keep it. */
export const makeConfinement = (
  options: ConfinementOptions
): Effect.Effect<Confinement, HypervisorError, Scope.Scope> =>
  process.getuid?.() === 0 ? confined(options) : unconfined(options)
