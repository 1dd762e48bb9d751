/**
 * Volumes in an object store, through ZeroFS: each is a file that ZeroFS serves over NBD. The daemon asks ZeroFS over its
 * own sockets and never touches the mount of its filesystem, on which a ZeroFS that is gone would leave it hanging.
 */
import * as path from "node:path"
import { Effect, Layer, Option, Schema, Semaphore, SubscriptionRef } from "effect"
import { ChildProcessSpawner } from "effect/process"
import type { ZerofsSection } from "../../../src/config/schema.ts"
import { VolumeId } from "../../../src/document/schema.ts"
import { GuestImage } from "../../../src/services/GuestImage.ts"
import {
  CheckpointError,
  type Checkpoints,
  VolumeBackend,
  VolumeError,
  type VolumeSpec
} from "../../../src/services/VolumeBackend.ts"
import { decideSize } from "../../../src/volume/size.ts"
import { makeDirectory, removeLeftovers } from "../../files/durable.ts"
import { makeSharedWork } from "../../files/shared-work.ts"
import { makeFilesystems } from "../filesystem.ts"
import { readCheckpoints } from "./checkpoint-table.ts"
import { runZerofs } from "./command.ts"
import { serveCheckpoint } from "./reader.ts"
import { makeRelays } from "./relays.ts"
import { EXPORTS, makeStore, stagingFile } from "./store.ts"
import { watchTrouble } from "./trouble.ts"

export interface ZerofsVolumesOptions {
  readonly zerofs: ZerofsSection
  /** Absolute; filesystems are made in `volumes/` in it before they go to ZeroFS. */
  readonly stateDir: string
  /** Where the sockets of the VMMs' volumes lie. */
  readonly runtimeDir: string
}

type Cause = { readonly message: string }

const asVolumeId = Schema.decodeUnknownOption(VolumeId)

/** Builds also while ZeroFS is away: then `trouble` says so, and every operation. */
export const layerZerofsVolumes = (options: ZerofsVolumesOptions) =>
  Layer.effect(
    VolumeBackend,
    Effect.gen(function* () {
      const { zerofs, runtimeDir } = options
      const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
      const image = yield* GuestImage
      const staging = path.join(options.stateDir, "volumes")
      yield* makeDirectory(staging, 0o700)
      yield* removeLeftovers(staging, ".making-")
      const filesystems = yield* makeFilesystems(path.join(options.stateDir, "initial-contents"))
      const withTools = Effect.provideService(ChildProcessSpawner.ChildProcessSpawner, spawner)

      const sockets = { ninepSocket: zerofs.ninep_socket_path, nbdSocket: zerofs.nbd_socket_path }
      const store = makeStore(sockets)
      const relays = yield* makeRelays({
        runtimeDir,
        program: image.nbdRelay,
        upstream: zerofs.nbd_socket_path
      })
      const trouble = yield* SubscriptionRef.make<string | undefined>(undefined)
      yield* watchTrouble({ ...sockets, directory: EXPORTS }, trouble)

      const command = (...words: ReadonlyArray<string>) => runZerofs(zerofs.binary, words).pipe(withTools)

      let knowsFlush = true
      /** By ZeroFS's own command; one that has none is told through the volume, which does the same. */
      const flushThrough = (name: string): Effect.Effect<void, Cause> =>
        knowsFlush
          ? command("flush", "--config", zerofs.config_file).pipe(
              Effect.asVoid,
              Effect.catch((error) => {
                if (!/unrecognized subcommand/u.test(error.reason)) return Effect.fail<Cause>(error)
                knowsFlush = false
                return store.flush(name)
              })
            )
          : store.flush(name)

      const create = (spec: VolumeSpec): Effect.Effect<void, Cause> =>
        Effect.gen(function* () {
          yield* sweepOnce
          const file = yield* stagingFile(staging, spec.volumeId)
          yield* filesystems.make({
            path: file,
            sizeBytes: spec.sizeBytes,
            ...(spec.contents === undefined ? {} : { contents: spec.contents })
          })
          yield* store.put(spec.volumeId, file, spec.sizeBytes, flushThrough)
        }).pipe(Effect.scoped, withTools)

      let swept = false
      const sweeping = Semaphore.makeUnsafe(1)
      /** What an earlier daemon left is removed before anything is made: what lies there then is nobody's. */
      const sweepOnce = Effect.suspend(() =>
        swept
          ? Effect.void
          : Effect.tap(store.sweep, () =>
              Effect.sync(() => {
                swept = true
              })
            )
      ).pipe(sweeping.withPermits(1))

      const verified = new Set<VolumeId>()
      /** Whether it is a filesystem is read once: nothing but its guest writes to it after. */
      const verify = (volumeId: VolumeId) =>
        Effect.suspend(() =>
          verified.has(volumeId)
            ? Effect.void
            : Effect.tap(store.verify(volumeId), () => Effect.sync(() => verified.add(volumeId)))
        )

      const failed = (volumeId: string, operation: VolumeError["operation"]) =>
        Effect.mapError((cause: Cause) => new VolumeError({ volumeId, operation, reason: cause.message }))

      const one = yield* makeSharedWork<void, VolumeError>()
      const provisionOnce = (spec: VolumeSpec) =>
        Effect.gen(function* () {
          const { volumeId } = spec
          const decision = decideSize(
            yield* store.size(volumeId).pipe(failed(volumeId, "created")),
            spec.sizeBytes
          )
          switch (decision.kind) {
            case "keep":
              return yield* verify(volumeId).pipe(failed(volumeId, "created"))
            case "create":
              return yield* create(spec).pipe(failed(volumeId, "created"))
            case "grow":
              return yield* verify(volumeId).pipe(
                Effect.andThen(store.grow(volumeId, spec.sizeBytes)),
                Effect.andThen(flushThrough(volumeId)),
                failed(volumeId, "grown")
              )
            case "refuse": {
              const { operation, reason } = decision
              return yield* new VolumeError({ volumeId, operation, reason })
            }
          }
        })

      const checkpointFailed = (checkpoint: string, operation: CheckpointError["operation"]) =>
        Effect.mapError(
          (cause: Cause) => new CheckpointError({ checkpoint, operation, reason: cause.message })
        )

      const list = Effect.gen(function* () {
        const read = readCheckpoints(yield* command("checkpoint", "list", "--config", zerofs.config_file))
        if ("unread" in read) {
          const line = JSON.stringify(read.unread.slice(0, 120))
          return yield* Effect.fail<Cause>({
            message: `zerofs checkpoint list printed ${line}, which is no checkpoint`
          })
        }
        return read
      })
      const oneReader = Semaphore.makeUnsafe(1)

      const checkpoints: Checkpoints = {
        list: list.pipe(checkpointFailed("*", "listed")),
        create: (name) =>
          command("checkpoint", "create", "--config", zerofs.config_file, "--", name).pipe(
            Effect.catchIf(
              (error) => /already exists/u.test(error.reason),
              () => Effect.void
            ),
            Effect.andThen(list),
            Effect.flatMap((all) => {
              const made = all.find((checkpoint) => checkpoint.name === name)
              return made === undefined
                ? Effect.fail<Cause>({ message: "zerofs made it and does not list it" })
                : Effect.succeed(made)
            }),
            checkpointFailed(name, "created")
          ),
        delete: (name) =>
          command("checkpoint", "delete", "--config", zerofs.config_file, "--", name).pipe(
            Effect.asVoid,
            Effect.catchIf(
              (error) => /not found/u.test(error.reason),
              () => Effect.void
            ),
            checkpointFailed(name, "deleted")
          ),
        open: (name, volumeId) =>
          Effect.gen(function* () {
            yield* Effect.acquireRelease(oneReader.take(1), () => oneReader.release(1), {
              interruptible: true
            })
            const { socketPath } = yield* serveCheckpoint(zerofs, name, volumeId)
            return { kind: "nbd" as const, socketPath, exportName: volumeId as string }
          }).pipe(withTools, checkpointFailed(name, "opened"))
      }

      return {
        checkpoints,
        trouble,

        provision: (spec) => one(spec.volumeId, provisionOnce(spec)),

        attach: (volumeId) =>
          Effect.gen(function* () {
            if ((yield* store.size(volumeId)) === undefined) {
              return yield* Effect.fail<Cause>({
                message: `its file ${EXPORTS}/${volumeId} does not exist in ZeroFS`
              })
            }
            yield* verify(volumeId)
            const socketPath = yield* relays.ensure(volumeId)
            return { kind: "nbd" as const, socketPath, exportName: volumeId as string }
          }).pipe(failed(volumeId, "attached")),

        teardown: (volumeId) =>
          Effect.gen(function* () {
            yield* relays.end(volumeId)
            verified.delete(volumeId)
            yield* store.remove(volumeId)
            // without the command ZeroFS does it by itself, within half a minute
            if (knowsFlush) yield* flushThrough(volumeId)
          }).pipe(failed(volumeId, "deleted")),

        list: store.names.pipe(
          Effect.map((names) => names.flatMap((name) => Option.toArray(asVolumeId(name)))),
          failed("*", "listed")
        ),

        flush: (volumeId) =>
          store.size(volumeId).pipe(
            Effect.flatMap((size) =>
              size === undefined
                ? Effect.fail<Cause>({ message: `its file ${EXPORTS}/${volumeId} does not exist in ZeroFS` })
                : flushThrough(volumeId)
            ),
            failed(volumeId, "flushed")
          )
      }
    })
  )
