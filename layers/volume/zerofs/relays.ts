/**
 * A process of its own for each volume that is in use, which gives its VMM that volume and no other: `nbd-relay`. It
 * outlives the daemon, as the VMM does, and ends by itself some minutes after its VMM.
 */
import { spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, readdirSync, readFileSync, rmSync } from "node:fs"
import * as fs from "node:fs/promises"
import { Effect, type Scope, Semaphore } from "effect"
import type { VolumeId } from "../../../src/document/schema.ts"
import { makeDirectory } from "../../files/durable.ts"
import { onFile } from "../../files/problem.ts"
import { identify, isAlive, killAndWait, type ProcessIdentity } from "../../hypervisor/qemu/process.ts"

export interface RelaysOptions {
  /** `paths.runtime_dir`. */
  readonly runtimeDir: string
  /** The relay's program. */
  readonly program: string
  /** ZeroFS's socket. */
  readonly upstream: string
}

/** Why there is no relay: a clause. */
export interface NoRelay {
  readonly message: string
}

export interface Relays {
  /** Has the volume's relay run; gives its socket, which is the same each time. */
  readonly ensure: (volumeId: VolumeId) => Effect.Effect<string, NoRelay>
  /** Ends it. No error when there is none. */
  readonly end: (volumeId: VolumeId) => Effect.Effect<void, NoRelay>
}

const WATCH_EVERY_MS = 1_000
const START_LIMIT_MS = 20_000
const KILL_LIMIT_MS = 10_000

export const relayRoot = (runtimeDir: string): string => `${runtimeDir.replace(/\/+$/u, "")}/nbd`

/** A socket's path has no room for a volume's id: 84 bits of its digest name the directory. */
export const relaySocket = (runtimeDir: string, volumeId: VolumeId): string =>
  `${relayRoot(runtimeDir)}/${createHash("sha256").update(volumeId).digest("base64url").slice(0, 14)}/s`

const directoryOf = (socketPath: string) => socketPath.slice(0, socketPath.lastIndexOf("/"))

/** The file that names a relay's volume. */
const noteOf = (socketPath: string) => `${directoryOf(socketPath)}.volume`

interface Running {
  readonly process: ProcessIdentity
  readonly socketPath: string
  readonly exportName: string
}

const commandOf = (pid: string): ReadonlyArray<string> => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")
  } catch {
    return []
  }
}

/** The relays of this host (told by its `runtime_dir`) that an earlier daemon has started. */
const listRelays = (runtimeDir: string): ReadonlyArray<Running> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .flatMap((pid) => {
      const [, socketPath, , exportName] = commandOf(pid)
      if (socketPath?.startsWith(`${relayRoot(runtimeDir)}/`) !== true || exportName === undefined) return []
      const process = identify(Number(pid))
      return process === undefined ? [] : [{ process, socketPath, exportName }]
    })

/** No process: it is to be started anew. */
const NOBODY: ProcessIdentity = { pid: 0, hostBootId: "", startTime: 0 }

/** Relays that were started once and have not ended by themselves; notes of those that have are removed. */
const deadRelays = (root: string): ReadonlyArray<Running> =>
  readdirSync(root)
    .filter((name) => name.endsWith(".volume"))
    .flatMap((name) => {
      const note = `${root}/${name}`
      const socketPath = `${note.slice(0, -".volume".length)}/s`
      if (existsSync(socketPath)) {
        return [{ process: NOBODY, socketPath, exportName: readFileSync(note, "utf8") }]
      }
      rmSync(note, { force: true })
      return []
    })

/** Starts a relay in a session of its own; succeeds when it listens. */
const start = (
  options: RelaysOptions,
  socketPath: string,
  exportName: string
): Effect.Effect<ProcessIdentity, NoRelay> =>
  Effect.callback<ProcessIdentity, NoRelay>((resume) => {
    const failed = (reason: string) =>
      resume(Effect.fail({ message: `the relay of its volume could not be started: ${reason}` }))
    let said = ""
    const child = spawn(options.program, [socketPath, options.upstream, exportName], {
      cwd: "/",
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
      env: {}
    })
    child.on("error", (error) => failed(error.message))
    child.stderr.on("data", (chunk: Buffer) => {
      said = `${said}${chunk}`.slice(-200)
    })
    child.on("close", (code) => failed(said.trim() === "" ? `it ended with code ${code}` : said.trim()))
    child.stdout.once("data", () => {
      child.unref()
      child.stdout.destroy()
      child.stderr.destroy()
      const process = child.pid === undefined ? undefined : identify(child.pid)
      if (process === undefined) failed("it ended at once")
      else resume(Effect.succeed(process))
    })
    return Effect.sync(() => void child.kill("SIGKILL"))
  }).pipe(
    Effect.timeoutOrElse({
      duration: START_LIMIT_MS,
      orElse: () =>
        Effect.fail({ message: `the relay of its volume did not listen within ${START_LIMIT_MS / 1000} s` })
    })
  )

/** Has the wait for a client begin anew; false when the relay has ended. */
const hold = ({ process: { pid } }: Running): boolean => {
  try {
    process.kill(pid, "SIGUSR1")
    return true
  } catch {
    return false
  }
}

/** Takes over the relays that run, and starts anew, as long as the scope lasts, whichever dies under its VMM. */
export const makeRelays = (options: RelaysOptions): Effect.Effect<Relays, NoRelay, Scope.Scope> =>
  Effect.gen(function* () {
    const root = relayRoot(options.runtimeDir)
    yield* makeDirectory(root, 0o700)
    const running = new Map<string, Running>()
    for (const relay of listRelays(options.runtimeDir)) running.set(relay.socketPath, relay)
    for (const relay of deadRelays(root))
      if (!running.has(relay.socketPath)) running.set(relay.socketPath, relay)
    const oneAtATime = Semaphore.makeUnsafe(1)

    const begin = (socketPath: string, exportName: string) =>
      start(options, socketPath, exportName).pipe(
        Effect.tap((process) =>
          Effect.sync(() => running.set(socketPath, { process, socketPath, exportName }))
        ),
        Effect.uninterruptible
      )

    const ensure: Relays["ensure"] = (volumeId) =>
      Effect.gen(function* () {
        const socketPath = relaySocket(options.runtimeDir, volumeId)
        const relay = running.get(socketPath)
        if (relay !== undefined && relay.exportName === volumeId && isAlive(relay.process) && hold(relay))
          return socketPath
        // the note is not where a VMM could change it: it says which volume is another's
        yield* onFile(noteOf(socketPath), () => fs.writeFile(noteOf(socketPath), volumeId, { mode: 0o600 }))
        yield* makeDirectory(directoryOf(socketPath))
        yield* begin(socketPath, volumeId)
        return socketPath
      }).pipe(oneAtATime.withPermits(1))

    const end: Relays["end"] = (volumeId) =>
      Effect.gen(function* () {
        const socketPath = relaySocket(options.runtimeDir, volumeId)
        const relay = running.get(socketPath)
        running.delete(socketPath)
        if (relay !== undefined) {
          yield* killAndWait(relay.process, KILL_LIMIT_MS).pipe(
            Effect.mapError(({ reason }) => ({ message: reason }))
          )
        }
        const directory = directoryOf(socketPath)
        for (const path of [directory, noteOf(socketPath)])
          yield* onFile(path, () => fs.rm(path, { recursive: true, force: true }))
      }).pipe(oneAtATime.withPermits(1))

    /** One that ended by itself has taken its socket along; one that died has not, and its VMM asks there. */
    const look = Effect.forEach(
      [...running.values()],
      (relay) =>
        Effect.gen(function* () {
          if (running.get(relay.socketPath) !== relay || isAlive(relay.process)) return
          running.delete(relay.socketPath)
          if (!existsSync(relay.socketPath)) return
          yield* Effect.logWarning(`the relay of volume ${relay.exportName} has died and is started anew`)
          yield* begin(relay.socketPath, relay.exportName)
        }).pipe(Effect.catch(({ message }) => Effect.logError(message))),
      { discard: true }
    )
    yield* Effect.suspend(() => look).pipe(
      oneAtATime.withPermits(1),
      Effect.andThen(Effect.sleep(WATCH_EVERY_MS)),
      Effect.forever,
      Effect.forkScoped
    )
    return { ensure, end }
  })
