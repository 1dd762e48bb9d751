/** Sleep and wake of microVMs by QEMU: a machine becomes a snapshot on the disk, and a snapshot a machine. */
import { dirname } from "node:path"
import { Cause, Deferred, Effect, Exit, Fiber, FileSystem, Option } from "effect"
import type { VmmIdentity } from "../../../src/hypervisor/identity.ts"
import {
  type Hypervisor,
  HypervisorError,
  type Machine,
  SleepFailed,
  SnapshotUnusable,
  WakeFailed
} from "../../../src/services/Hypervisor.ts"
import { snapshotMismatch } from "../../../src/services/snapshot.ts"
import { makeDirectory } from "../../files/durable.ts"
import type { Attachment } from "./attachment.ts"
import type { Start } from "./layer.ts"
import type { ProcessIdentity } from "./process.ts"
import { noteRun, noteSnapshot, readSpec } from "./run-directory.ts"
import {
  discardSnapshot,
  putBack,
  removeUsed,
  snapshotFiles,
  sweepSnapshots,
  useUp
} from "./snapshot/files.ts"
import { load, readRecord, type Unusable, verify } from "./snapshot/load.ts"
import type { NotReceived } from "./snapshot/receive.ts"
import { makeRoom } from "./snapshot/room.ts"
import { commit, resume, save, undo } from "./snapshot/save.ts"

type Message = { readonly message: string }

interface Parts {
  readonly fs: FileSystem.FileSystem
  /** What snapshots are made under: they wake under nothing else. */
  readonly hypervisor: string
  /** The user that the VMM of a slot runs as; undefined: the daemon's. */
  readonly ownerOf: (slot: number) => VmmIdentity | undefined
  /** Limits what the VMM of a slot gets of the processors, or lifts the limit. */
  readonly limitTime: (slot: number, cpus: number | undefined) => Effect.Effect<void, Message>
  readonly attachmentOf: (machine: Machine) => Attachment | undefined
  readonly start: Start
  readonly shown: (attachment: Attachment) => Machine
  readonly end: (process: ProcessIdentity) => Effect.Effect<void, Message>
  readonly clean: (slot: number, machineId: string) => Effect.Effect<void, Message>
}

/** The restore itself failed: the snapshot has been given to QEMU. */
interface NotRestored {
  readonly notRestored: string
}

export const makeSleeping = (
  parts: Parts
): Pick<Hypervisor["Service"], "sleep" | "wake" | "snapshot" | "discard" | "sweepSnapshots"> => {
  const { fs, hypervisor } = parts
  const room = makeRoom()
  const withFiles = Effect.provideService(FileSystem.FileSystem, fs)

  const sleep: Hypervisor["Service"]["sleep"] = (machine, place) =>
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const { appId, slot, machineId } = machine.record
        const failed = (reason: string, resumed: boolean) => new SleepFailed({ appId, reason, resumed })
        const held = parts.attachmentOf(machine)
        if (held === undefined) return yield* failed("this daemon does not hold its microVM", false)
        const { qmp, directory, process } = held

        const early = (error: Message | NotReceived) =>
          failed("message" in error ? error.message : error.reason, true)

        const spec = yield* readSpec(directory, machineId).pipe(Effect.mapError(early))
        if (spec === undefined) {
          return yield* failed("nobody wrote down what its microVM was started with", true)
        }

        /** The machine runs on: nothing of a snapshot may be left that counts, else it is ended. */
        const giveUp = (reason: string, committed: boolean) =>
          Effect.gen(function* () {
            const undone = Exit.isSuccess(yield* Effect.exit(undo(place)))
            if (committed && !undone) yield* Effect.ignore(parts.end(process))
            else if (!undone)
              yield* Effect.logWarning(`what is left of the sleep of ${appId} stays on the disk`)
            const resumed =
              (undone || !committed) &&
              Exit.isSuccess(
                yield* Effect.exit(Effect.andThen(parts.limitTime(slot, spec.vcpuCount), resume(qmp)))
              )
            if (resumed) yield* Effect.ignore(noteSnapshot(directory, undefined))
            return failed(reason, resumed)
          })

        yield* undo(place).pipe(Effect.mapError(early))
        const parent = dirname(place.directory)
        yield* makeDirectory(parent, 0o700).pipe(
          Effect.andThen(room.take(parent, spec.memoryMib * 2 ** 20)),
          Effect.mapError(early)
        )
        yield* noteSnapshot(directory, place.directory).pipe(Effect.mapError(early))

        yield* parts.limitTime(slot, undefined).pipe(Effect.mapError(early))
        const record = yield* restore(
          save(qmp, { path: directory.save, owner: parts.ownerOf(slot) }, spec, place, hypervisor)
        ).pipe(
          Effect.catch(({ reason }) => Effect.flatMap(giveUp(reason, false), Effect.fail)),
          Effect.onInterrupt(() => giveUp("it was interrupted", false))
        )
        yield* commit(place).pipe(
          Effect.andThen(parts.end(process).pipe(Effect.mapError(({ message }) => ({ reason: message })))),
          Effect.catch(({ reason }) => Effect.flatMap(giveUp(reason, true), Effect.fail))
        )
        yield* parts
          .clean(slot, machineId)
          .pipe(
            Effect.catch((error) =>
              Effect.logWarning(`what the VMM of ${appId} left stays: ${error.message}`)
            )
          )
        return record
      })
    ).pipe(Effect.scoped, withFiles)

  const wake: Hypervisor["Service"]["wake"] = (spec, place) =>
    Effect.gen(function* () {
      const { appId } = spec
      const files = snapshotFiles(place.directory)
      const record = yield* readRecord(files)
      const mismatch = snapshotMismatch(record, { spec, deploymentId: place.deploymentId, hypervisor })
      if (mismatch !== undefined) return yield* Effect.fail<Unusable>({ kind: "foreign", unusable: mismatch })

      const spawned = yield* Deferred.make<void>()
      // beside the start of QEMU, and not in its way
      const verifying = yield* Effect.forkChild(
        Deferred.await(spawned).pipe(Effect.andThen(verify(files, record))),
        { startImmediately: true }
      )
      // Not before there is a VMM: a daemon that finds one that has not run yet puts the snapshot back.
      const usingUp = yield* Effect.forkChild(
        Deferred.await(spawned).pipe(Effect.andThen(Effect.uninterruptible(useUp(files)))),
        { startImmediately: true }
      )
      const notRestored = ({ message }: Message): NotRestored => ({ notRestored: message })
      let given = false
      let ran = false

      const attachment = yield* parts
        .start<Unusable | NotRestored>(spec, {
          sleeper: { directory: files.directory, memory: files.memory, spawned },
          ready: ({ qmp }, { stdin }) =>
            Effect.gen(function* () {
              const state = yield* Fiber.join(verifying)
              yield* Fiber.join(usingUp).pipe(Effect.mapError(notRestored))
              given = true
              if (stdin !== undefined) yield* load(qmp, stdin, state)
            }),
          go: ({ qmp, directory }) =>
            parts.limitTime(spec.slot, spec.vcpuCount).pipe(
              Effect.andThen(noteRun(directory)),
              Effect.mapError(notRestored),
              Effect.andThen(
                Effect.suspend(() => {
                  ran = true
                  return Effect.asVoid(qmp.execute("cont"))
                })
              )
            )
        })
        .pipe(
          Effect.onError((cause) =>
            Effect.gen(function* () {
              yield* Fiber.interrupt(usingUp)
              const unusable = Option.exists(Cause.findErrorOption(cause), (error) => "unusable" in error)
              const lost = ran || unusable || (given && !Cause.hasInterruptsOnly(cause))
              yield* lost ? discardSnapshot(place.directory) : putBack(files)
            }).pipe(
              Effect.catch((error) =>
                Effect.logWarning(`what is left of the snapshot of ${appId} stays: ${error.message}`)
              )
            )
          ),
          Effect.mapError((error): Unusable | WakeFailed =>
            "unusable" in error
              ? error
              : new WakeFailed({
                  appId,
                  reason: "notRestored" in error ? error.notRestored : error.notStarted,
                  kept: !given && !ran
                })
          )
        )
      // QEMU has the memory file open; its name goes, its blocks when QEMU ends
      yield* removeUsed(files).pipe(
        Effect.andThen(noteSnapshot(attachment.directory, undefined)),
        withFiles,
        Effect.catch((error) =>
          Effect.logWarning(`what is left of the snapshot of ${appId} stays: ${error.message}`)
        ),
        Effect.uninterruptible
      )
      return parts.shown(attachment)
    }).pipe(
      Effect.catchIf(
        (error): error is Unusable => "unusable" in error,
        ({ kind, unusable }) =>
          discardSnapshot(place.directory).pipe(
            Effect.catch((error) =>
              Effect.logWarning(`the snapshot of ${spec.appId} cannot be removed: ${error.message}`)
            ),
            Effect.andThen(Effect.fail(new SnapshotUnusable({ appId: spec.appId, kind, reason: unusable })))
          )
      )
    )

  const failed = (operation: string) => (error: Message) =>
    new HypervisorError({ operation, reason: error.message })

  return {
    sleep,
    wake,
    snapshot: (directory) =>
      readRecord(snapshotFiles(directory)).pipe(
        Effect.map(({ files: _, ...record }) => Option.some(record)),
        Effect.catch(({ kind, unusable }) =>
          kind === "missing"
            ? Effect.succeedNone
            : Effect.fail(failed(`read the snapshot in ${directory}`)({ message: unusable }))
        )
      ),
    discard: (directory) =>
      discardSnapshot(directory).pipe(Effect.mapError(failed(`remove the snapshot in ${directory}`))),
    sweepSnapshots: (root, keep) =>
      sweepSnapshots(root, keep).pipe(Effect.mapError(failed(`clear ${root} of what is no snapshot`)))
  }
}
