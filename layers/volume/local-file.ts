/** Volumes as sparse files: `<state_dir>/volumes/<volumeId>.img`, an ext4 filesystem each. */
import { randomBytes } from "node:crypto"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect, Layer, Option, Schema, SubscriptionRef } from "effect"
import { VolumeId } from "../../src/document/schema.ts"
import { VolumeBackend, VolumeError, type VolumeSpec } from "../../src/services/VolumeBackend.ts"
import { decideSize } from "../../src/volume/size.ts"
import {
  fileSize,
  makeDirectory,
  openFile,
  removeFile,
  removeLeftovers,
  syncDirectory
} from "../files/durable.ts"
import { ifPresent, onFile } from "../files/problem.ts"
import { makeFilesystems } from "./filesystem.ts"

const HALF_MADE = ".making-"
const SUFFIX = ".img"

export interface LocalFileVolumesOptions {
  /** Absolute; the volumes are in `volumes/` in it. */
  readonly stateDir: string
}

/**
 * Fails when the directory cannot be made. A file that has a volume's name is a whole filesystem: it gets that
 * name when it is formatted and flushed, and never before.
 */
export const layerLocalFileVolumes = (options: LocalFileVolumesOptions) =>
  Layer.effect(
    VolumeBackend,
    Effect.gen(function* () {
      const directory = path.join(options.stateDir, "volumes")
      yield* makeDirectory(directory, 0o700)
      yield* removeLeftovers(directory, HALF_MADE)
      const filesystems = yield* makeFilesystems(path.join(options.stateDir, "initial-contents"))
      const fileOf = (volumeId: VolumeId) => path.join(directory, volumeId + SUFFIX)

      const create = (spec: VolumeSpec) => {
        const temporary = path.join(
          directory,
          `${HALF_MADE}${spec.volumeId}-${randomBytes(4).toString("hex")}`
        )
        const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL
        return Effect.gen(function* () {
          const file = yield* openFile(temporary, flags)
          yield* filesystems.make({
            path: temporary,
            sizeBytes: spec.sizeBytes,
            ...(spec.contents === undefined ? {} : { contents: spec.contents })
          })
          yield* onFile(fileOf(spec.volumeId), () => file.sync())
          // A link, where a rename would replace: a volume that is there is never lost to a second call.
          yield* ifAbsent(onFile(fileOf(spec.volumeId), () => fs.link(temporary, fileOf(spec.volumeId))))
        }).pipe(
          Effect.scoped,
          Effect.andThen(removeFile(temporary)),
          Effect.andThen(syncDirectory(directory)),
          Effect.onError(() => Effect.ignore(removeFile(temporary)))
        )
      }

      const grow = (spec: VolumeSpec) =>
        openFile(fileOf(spec.volumeId), constants.O_RDWR | constants.O_NOFOLLOW).pipe(
          Effect.flatMap((file) =>
            onFile(fileOf(spec.volumeId), () => file.truncate(spec.sizeBytes)).pipe(
              Effect.andThen(onFile(fileOf(spec.volumeId), () => file.sync()))
            )
          ),
          Effect.scoped
        )

      const failed = (volumeId: VolumeId, operation: VolumeError["operation"]) =>
        Effect.mapError(
          (cause: { readonly message: string }) =>
            new VolumeError({ volumeId, operation, reason: cause.message })
        )

      const withoutTrouble = yield* SubscriptionRef.make<string | undefined>(undefined)

      return {
        checkpoints: undefined,
        trouble: withoutTrouble,

        flush: (volumeId) =>
          openFile(fileOf(volumeId), constants.O_RDWR | constants.O_NOFOLLOW).pipe(
            Effect.flatMap((file) => onFile(fileOf(volumeId), () => file.datasync())),
            Effect.scoped,
            failed(volumeId, "flushed")
          ),

        provision: (spec) =>
          Effect.gen(function* () {
            const present = yield* fileSize(fileOf(spec.volumeId)).pipe(failed(spec.volumeId, "created"))
            const decision = decideSize(present, spec.sizeBytes)
            switch (decision.kind) {
              case "keep":
                return
              case "create":
                return yield* create(spec).pipe(failed(spec.volumeId, "created"))
              case "grow":
                return yield* grow(spec).pipe(failed(spec.volumeId, "grown"))
              case "refuse": {
                const { operation, reason } = decision
                return yield* new VolumeError({ volumeId: spec.volumeId, operation, reason })
              }
            }
          }),

        attach: (volumeId) =>
          fileSize(fileOf(volumeId)).pipe(
            failed(volumeId, "attached"),
            Effect.filterOrFail(
              (size) => size !== undefined,
              () =>
                new VolumeError({
                  volumeId,
                  operation: "attached",
                  reason: `its file ${fileOf(volumeId)} does not exist`
                })
            ),
            Effect.as({ kind: "file" as const, path: fileOf(volumeId) })
          ),

        teardown: (volumeId) =>
          ifPresent(onFile(fileOf(volumeId), () => fs.unlink(fileOf(volumeId)))).pipe(
            Effect.andThen(syncDirectory(directory)),
            Effect.uninterruptible,
            failed(volumeId, "deleted")
          ),

        list: onFile(directory, () => fs.readdir(directory)).pipe(
          Effect.mapError(
            (problem) => new VolumeError({ volumeId: "*", operation: "listed", reason: problem.reason })
          ),
          Effect.map((names) =>
            names
              .filter((name) => name.endsWith(SUFFIX))
              .flatMap((name) => Option.toArray(asVolumeId(name.slice(0, -SUFFIX.length))))
          )
        )
      }
    })
  )

const asVolumeId = Schema.decodeUnknownOption(VolumeId)

const ifAbsent = <A, E extends { readonly code: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.catchIf(
    effect,
    (problem) => problem.code === "EEXIST",
    () => Effect.void
  )
