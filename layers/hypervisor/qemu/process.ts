/**
 * Processes as /proc shows them. A pid alone names nobody for long: it is used together with the boot of the host and
 * the process's start time, and a VMM also has its machine's id on its command line.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { Clock, Effect, Option } from "effect"
import type { MachineRecord } from "../../../src/services/Hypervisor.ts"
import { readCommandLine, type VmmName } from "./command-line.ts"
import { runDirectory } from "./run-directory.ts"

export type ProcessIdentity = NonNullable<MachineRecord["process"]>

/** A process that runs a microVM of this host. */
export interface Vmm extends VmmName {
  readonly process: ProcessIdentity
}

/** Reads a file of /proc; none when the process has gone, or is not to be looked at. */
const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, "utf8")
  } catch {
    return undefined
  }
}

let bootId: string | undefined

/** The id of this boot of the host. */
export const hostBootId = (): string => {
  bootId ??= readFileSync("/proc/sys/kernel/random/boot_id", "latin1").trim()
  return bootId
}

/**
 * Fields 3 (state), 20 (threads) and 22 (start time) of `/proc/<pid>/stat`; none for a process that has ended, reaped or
 * not. A process whose first thread alone has ended has not: the others hold its files and its ports.
 */
const startTime = (pid: number): number | undefined => {
  const stat = read(`/proc/${pid}/stat`)
  if (stat === undefined) return undefined
  // The program's name, in parentheses, may hold spaces and parentheses: the fields start behind the last.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ")
  const [state, threads, started] = [fields[0], Number(fields[17]), fields[19]]
  const ended = state === "X" || (state === "Z" && threads <= 1)
  return ended || started === undefined ? undefined : Number(started)
}

/** Who runs under this pid now; none when nobody does. */
export const identify = (pid: number): ProcessIdentity | undefined => {
  const started = startTime(pid)
  return started === undefined ? undefined : { pid, hostBootId: hostBootId(), startTime: started }
}

/** Whether the very process still runs. */
export const isAlive = (process: ProcessIdentity): boolean =>
  startTime(process.pid) === process.startTime && hostBootId() === process.hostBootId

const inspect = (pid: number, runtimeDir: string): Vmm | undefined => {
  const argv = read(`/proc/${pid}/cmdline`)?.split("\0")
  const identity = argv === undefined ? undefined : readCommandLine(argv, runtimeDir)
  const process = identity === undefined ? undefined : identify(pid)
  return identity === undefined || process === undefined ? undefined : { ...identity, process }
}

/** Every VMM of this host (told by its `runtime_dir`) that runs now. */
export const listVmms = (runtimeDir: string): ReadonlyArray<Vmm> =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .flatMap((pid) => inspect(Number(pid), runtimeDir) ?? [])

/**
 * The VMM of a record: by its process where the record names one and it is still that process, else by its machineId.
 * What runs under a pid that the record names is believed only when its command line names the machine too.
 */
export const findVmm = (record: MachineRecord, runtimeDir: string): Vmm | undefined => {
  const named = record.process === undefined ? undefined : inspect(record.process.pid, runtimeDir)
  if (
    named !== undefined &&
    named.machineId === record.machineId &&
    named.process.startTime === record.process?.startTime &&
    named.process.hostBootId === record.process.hostBootId
  ) {
    return named
  }
  // A VMM has its run directory from before its start; to look for one that has none in all of /proc is dear.
  return record.process === undefined && existsSync(runDirectory(runtimeDir, record.slot).path)
    ? listVmms(runtimeDir).find((vmm) => vmm.machineId === record.machineId)
    : undefined
}

/** Bytes of memory that the process holds: field 2 of `statm`, in pages of 4 KiB on x86-64. */
export const residentBytes = (process: ProcessIdentity): Option.Option<number> => {
  const pages = Number(read(`/proc/${process.pid}/statm`)?.split(" ")[1])
  return Number.isFinite(pages) && isAlive(process) ? Option.some(pages * 4096) : Option.none()
}

/**
 * Done when the process has ended. Node has no pidfd to wait on, so it is looked at: after `firstMs`, then ever more
 * seldom, at last every `longestMs`.
 */
export const awaitEnd = (process: ProcessIdentity, firstMs: number, longestMs: number): Effect.Effect<void> =>
  Effect.gen(function* () {
    for (let wait = firstMs; isAlive(process); wait = Math.min(wait * 2, longestMs)) yield* Effect.sleep(wait)
  })

/** What kept a process from being ended. */
export type KillFailure = { readonly reason: string }

/**
 * Ends the process with SIGKILL and waits until it is gone; no error when it is gone already. A process that is stuck
 * in the kernel is given up on after `limitMs`.
 */
export const killAndWait = (process: ProcessIdentity, limitMs: number): Effect.Effect<void, KillFailure> =>
  Effect.gen(function* () {
    if (!isAlive(process)) return
    const refused = sendKill(process.pid)
    if (refused !== undefined) return yield* Effect.fail({ reason: refused })
    const began = yield* Clock.currentTimeMillis
    while (isAlive(process)) {
      if ((yield* Clock.currentTimeMillis) - began > limitMs) {
        return yield* Effect.fail({
          reason: `process ${process.pid} is still there ${limitMs} ms after SIGKILL`
        })
      }
      yield* Effect.sleep(5)
    }
  })

const sendKill = (pid: number): string | undefined => {
  try {
    process.kill(pid, "SIGKILL")
    return undefined
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    return code === "ESRCH" ? undefined : `process ${pid} cannot be sent SIGKILL (${code ?? String(error)})`
  }
}
