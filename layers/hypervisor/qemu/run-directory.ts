/**
 * `<runtime_dir>/vm/<slot>`: the sockets of one VMM, and a note of which machine they are. Named by slot and not by
 * app, because the path of a unix socket has room for 107 bytes only.
 */
import { chmodSync, existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs"
import { Effect, FileSystem, type PlatformError, Schema } from "effect"
import { MAX_SLOTS } from "../../../src/network/addresses.ts"
import { MachineSpec } from "../../../src/services/Hypervisor.ts"
import { type FileProblem, fileProblem } from "../../files/problem.ts"

/** `sun_path` of a unix socket, without its NUL. */
export const MAX_SOCKET_PATH_BYTES = 107

export interface RunDirectory {
  readonly path: string
  /** QEMU's control socket. */
  readonly qmp: string
  /** The host's end of the channel to PID 1. */
  readonly guest: string
  /** The guest's serial console. */
  readonly console: string
  /** Where QEMU sends a machine that is put to sleep. */
  readonly save: string
  /** Holds the machineId of the VMM that the directory was made for. */
  readonly owner: string
  /** What the VMM was started with. */
  readonly spec: string
  /** Names the snapshot that is being written or woken: a daemon that finds the VMM half-way has to know. */
  readonly snapshot: string
  /** There once a machine that wakes may run: what it wakes from is of no use any more. */
  readonly ran: string
}

/** The directory of all run directories. */
export const runRoot = (runtimeDir: string) => `${runtimeDir.replace(/\/+$/u, "")}/vm`

export const runDirectory = (runtimeDir: string, slot: number): RunDirectory => {
  const path = `${runRoot(runtimeDir)}/${slot}`
  return {
    path,
    qmp: `${path}/qmp.sock`,
    guest: `${path}/guest.sock`,
    console: `${path}/console.sock`,
    save: `${path}/save.sock`,
    owner: `${path}/machine`,
    spec: `${path}/spec`,
    snapshot: `${path}/snapshot`,
    ran: `${path}/ran`
  }
}

/** `runtime_dir` leaves no room for the sockets in it. */
export class RuntimeDirTooLong extends Schema.TaggedError<RuntimeDirTooLong>()("RuntimeDirTooLong", {
  runtimeDir: Schema.String,
  socketBytes: Schema.Int
}) {
  override get message() {
    return (
      `runtime_dir ${JSON.stringify(this.runtimeDir)} is too long: the sockets in it would have paths of up to ` +
      `${this.socketBytes} bytes, and ${MAX_SOCKET_PATH_BYTES} are the most. Choose a directory whose path is ` +
      `${this.socketBytes - MAX_SOCKET_PATH_BYTES} bytes shorter`
    )
  }
}

/** Bytes of the longest socket path under this `runtime_dir`, whatever the slot. */
export const longestSocketPath = (runtimeDir: string): number => {
  const { qmp, guest, console, save } = runDirectory(runtimeDir, MAX_SLOTS - 1)
  return Math.max(...[qmp, guest, console, save].map((path) => new TextEncoder().encode(path).length))
}

/** Fails where a slot's sockets would not fit, before anything is booted. */
export const checkRuntimeDir = (runtimeDir: string): Effect.Effect<void, RuntimeDirTooLong> => {
  const socketBytes = longestSocketPath(runtimeDir)
  return socketBytes > MAX_SOCKET_PATH_BYTES
    ? Effect.fail(new RuntimeDirTooLong({ runtimeDir, socketBytes }))
    : Effect.void
}

/** The VMM, another user, finds in it what is its own by name. Everybody else is stopped at the directory above. */
const DIRECTORY_MODE = 0o711

const encodeSpec = Schema.encodeSync(Schema.fromJsonString(MachineSpec))
const decodeSpec = Schema.decodeUnknownOption(Schema.fromJsonString(MachineSpec))

/**
 * Makes the directory anew, for this machine; what an earlier VMM of the slot left there goes. Whole or not at all. At once, and not
 * step by step in between others' work: a caller waits for it.
 */
export const createRunDirectory = (
  directory: RunDirectory,
  spec: MachineSpec
): Effect.Effect<void, FileProblem> =>
  Effect.try({
    try: () => {
      const { path, owner } = directory
      rmSync(path, { recursive: true, force: true })
      try {
        mkdirSync(path, { recursive: true, mode: DIRECTORY_MODE })
        chmodSync(path, DIRECTORY_MODE)
        writeFileSync(owner, spec.machineId, { mode: 0o600 })
        writeFileSync(directory.spec, encodeSpec(spec), { mode: 0o600 })
      } catch (error) {
        rmSync(path, { recursive: true, force: true })
        throw error
      }
    },
    catch: (error) => fileProblem(directory.path, error)
  })

const ifThere = <A, R>(effect: Effect.Effect<A, PlatformError.PlatformError, R>) =>
  Effect.catchIf(
    effect,
    (error) => error.reason._tag === "NotFound",
    () => Effect.succeed(undefined)
  )

/** What the machine was started with; undefined where it was started by a daemon that did not write it down. */
export const readSpec = Effect.fnUntraced(function* (directory: RunDirectory, machineId: string) {
  const fs = yield* FileSystem.FileSystem
  const text = yield* ifThere(fs.readFileString(directory.spec))
  const spec = decodeSpec(text)
  return spec._tag === "Some" && spec.value.machineId === machineId ? spec.value : undefined
})

/** Notes which snapshot the VMM is on its way to or from; undefined: none. */
export const noteSnapshot = (
  directory: RunDirectory,
  place: string | undefined
): Effect.Effect<void, FileProblem> =>
  Effect.try({
    try: () => {
      if (place === undefined) rmSync(directory.snapshot, { force: true })
      else writeFileSync(directory.snapshot, place, { mode: 0o600 })
    },
    catch: (error) => fileProblem(directory.snapshot, error)
  })

/** Notes that the machine may run from here on. */
export const noteRun = (directory: RunDirectory): Effect.Effect<void, FileProblem> =>
  Effect.try({
    try: () => writeFileSync(directory.ran, "", { mode: 0o600 }),
    catch: (error) => fileProblem(directory.ran, error)
  })

/** Whether a machine that woke may have run. */
export const mayHaveRun = (directory: RunDirectory): boolean => existsSync(directory.ran)

/** The snapshot that the VMM was on its way to or from, when an earlier daemon died over it. */
export const notedSnapshot = Effect.fnUntraced(function* (directory: RunDirectory) {
  const fs = yield* FileSystem.FileSystem
  return yield* ifThere(fs.readFileString(directory.snapshot))
})

/** Which machine the directory was made for; undefined where there is none. */
export const ownerOf = Effect.fnUntraced(function* (directory: RunDirectory) {
  const fs = yield* FileSystem.FileSystem
  return yield* ifThere(fs.readFileString(directory.owner))
})

/**
 * Removes the directory if it was made for this machine: another may hold the slot by now. What else is the machine's goes
 * before, by `release`.
 */
export const removeRunDirectory = Effect.fnUntraced(function* <E, R>(
  directory: RunDirectory,
  machineId: string,
  release: Effect.Effect<void, E, R>
) {
  const fs = yield* FileSystem.FileSystem
  const owner = yield* ownerOf(directory)
  if (owner === undefined || owner === machineId || owner === "") {
    yield* release
    yield* fs.remove(directory.path, { recursive: true, force: true })
  }
})
