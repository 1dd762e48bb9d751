/** What a daemon holds of a running VMM: its control socket, its console, and the watch for its end. */
import { Deferred, Effect, type Scope } from "effect"
import type { Machine, MachineExit, MachineRecord } from "../../../src/services/Hypervisor.ts"
import { type Console, panicReason, readConsole } from "./console.ts"
import { explainDeath } from "./explain.ts"
import { untilTimerIsGood } from "./guest-timer.ts"
import { resumeAfterIoErrors } from "./io-error.ts"
import { awaitEnd, type ProcessIdentity, residentBytes } from "./process.ts"
import { connectQmp, type Qmp, type QmpError } from "./qmp.ts"
import type { RunDirectory } from "./run-directory.ts"
import type { Child } from "./spawn.ts"

/** An adopted VMM's control socket closes at its end; that it is looked at as well, so often, is a second way to know. */
const WATCH_EVERY_MS = 2_000

const withReason = <A extends object>(
  exit: A,
  reason: string | undefined
): A & { readonly reason?: string } => (reason === undefined ? exit : { ...exit, reason })

/** How the VMM ended; waits for that. */
const observeEnd = (
  process: ProcessIdentity,
  qmp: Qmp,
  console: Console,
  child: Child | undefined
): Effect.Effect<MachineExit> =>
  Effect.gen(function* () {
    const end = child === undefined ? undefined : yield* Deferred.await(child.ended)
    if (end === undefined) {
      yield* Effect.raceFirst(
        Deferred.await(qmp.closed).pipe(Effect.andThen(awaitEnd(process, 5, 200))),
        awaitEnd(process, WATCH_EVERY_MS, WATCH_EVERY_MS)
      )
    }
    // The last words may still lie in the sockets; with the process gone both are at their end at once.
    yield* Effect.all([Deferred.await(qmp.closed), Deferred.await(console.closed)], {
      concurrency: "unbounded"
    }).pipe(Effect.timeoutOption(2_000))

    if (end === undefined) return withReason({ kind: "gone" }, panicReason(console.text()))
    if (end.signal !== null) return { kind: "killed", signal: end.signal }
    const code = end.code ?? 0
    return withReason(
      { kind: "exited", code },
      code === 0
        ? panicReason(console.text())
        : explainDeath(child?.stderr.text() ?? "", `ended with code ${code}`)
    )
  })

/** What a daemon holds of a VMM, beyond what it shows of it. */
export interface Attachment {
  readonly machine: Machine
  readonly qmp: Qmp
  readonly directory: RunDirectory
  readonly process: ProcessIdentity
}

/** Where a machine is in its life, in QEMU's word: `prelaunch`, `inmigrate`, `paused`, `running`, … */
export const runState = (qmp: Qmp): Effect.Effect<string, QmpError> =>
  Effect.map(qmp.execute("query-status"), (answer) => {
    const { status } = (answer ?? {}) as { readonly status?: unknown }
    return typeof status === "string" ? status : "unknown"
  })

/** Lets a machine run that was started paused; any other is left alone. */
export const letRun = Effect.fnUntraced(function* (qmp: Qmp) {
  if ((yield* runState(qmp)) === "prelaunch") yield* qmp.execute("cont")
})

/**
 * Takes hold of a VMM: of one that was just started as a child, as soon as its control socket is there. The hold ends with
 * the scope, the VMM does not. Lets nothing run. `measuresTimer`: its guest may be about to boot on a timer of QEMU's.
 */
export const attach = (
  record: MachineRecord & { readonly process: ProcessIdentity },
  directory: RunDirectory,
  child: Child | undefined,
  measuresTimer: boolean
): Effect.Effect<Attachment, QmpError, Scope.Scope> =>
  Effect.gen(function* () {
    const qmp = yield* connectQmp(directory.qmp, { untilListening: child !== undefined })
    const console = yield* readConsole(directory.console)
    const exit = yield* Deferred.make<MachineExit>()
    yield* observeEnd(record.process, qmp, console, child).pipe(
      Effect.flatMap((end) => Deferred.succeed(exit, end)),
      Effect.forkScoped
    )
    const volume = { failing: false }
    yield* resumeAfterIoErrors(record.appId, qmp, runState(qmp), volume).pipe(
      // A crowded machine may be late with an answer; a QEMU that has hung up has ended.
      Effect.retry({ while: () => !Deferred.isDoneUnsafe(qmp.closed) }),
      Effect.ignore,
      Effect.forkScoped
    )
    if (measuresTimer)
      yield* untilTimerIsGood(record.appId, qmp, console).pipe(Effect.ignore, Effect.forkScoped)
    const machine: Machine = {
      record,
      exit,
      channel: { kind: "unix", path: directory.guest },
      residentBytes: Effect.sync(() => residentBytes(record.process)),
      waitsForVolume: Effect.sync(() => volume.failing)
    }
    return { machine, qmp, directory, process: record.process }
  })
