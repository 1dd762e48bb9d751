/** What the daemon does with the files that volumes are in ZeroFS: `.nbd/<volumeId>`. */
import { randomBytes } from "node:crypto"
import * as fs from "node:fs/promises"
import { Effect, Schema } from "effect"
import type { VolumeId } from "../../../src/document/schema.ts"
import { runTool } from "../../files/tool.ts"
import { openExport } from "./nbd.ts"
import { type Directory, EEXIST, type FileRefused, openDirectory } from "./ninep.ts"
import { type NoAnswer, within } from "./socket.ts"

/** ZeroFS's directory of what it serves over NBD. */
export const EXPORTS = ".nbd"
const HALF_MADE = ".making-"

/** A volume's file is there and is no filesystem: it is left alone. */
export class NotAFilesystem extends Schema.TaggedError<NotAFilesystem>()("NotAFilesystem", {
  name: Schema.String
}) {
  override get message() {
    return (
      `its file ${EXPORTS}/${this.name} in ZeroFS is there and holds no ext4 filesystem, and nothing is ever ` +
      "formatted over: if nothing in it is needed, remove it by hand"
    )
  }
}

export interface StoreOptions {
  readonly ninepSocket: string
  readonly nbdSocket: string
}

const ANSWER_LIMIT_SECONDS = 15
/** A superblock that is not in the cache comes from the object store. */
const READ_LIMIT_SECONDS = 60
/** The first write of a filesystem with contents goes to the cache, which may have to be made room in. */
const COPY_LIMIT = "60 minutes"

const SUPERBLOCK_BYTES = 4096
const MAGIC_AT = 1024 + 0x38
const EXT4_MAGIC = 0xef53

export type Store = ReturnType<typeof makeStore>

const isExt4 = (bytes: Buffer) => bytes.readUInt16LE(MAGIC_AT) === EXT4_MAGIC

export const makeStore = ({ ninepSocket, nbdSocket }: StoreOptions) => {
  const withFiles = <A, E>(
    use: (files: Directory) => Effect.Effect<A, E>
  ): Effect.Effect<A, E | FileRefused | NoAnswer> =>
    openDirectory(ninepSocket, EXPORTS).pipe(
      Effect.flatMap(use),
      Effect.scoped,
      within(ANSWER_LIMIT_SECONDS, ninepSocket)
    )

  const readSuperblock = (name: string) =>
    openExport(nbdSocket, name).pipe(
      Effect.flatMap((volume) => volume.read(0, SUPERBLOCK_BYTES)),
      Effect.scoped,
      within(READ_LIMIT_SECONDS, nbdSocket)
    )

  const remove = (name: string) => withFiles((files) => files.remove(name))

  /** ZeroFS's file was made just now and is all zeros: only what is something else is written. */
  const copy = (file: string, name: string) =>
    runTool(
      "qemu-img",
      [
        ...["convert", "-n", "--target-is-zero", "-f", "raw"],
        ...["--target-image-opts", file],
        `driver=nbd,server.type=unix,server.path=${nbdSocket.replaceAll(",", ",,")},export=${name}`
      ],
      { limit: COPY_LIMIT }
    )

  return {
    size: (volumeId: VolumeId) => withFiles((files) => files.size(volumeId)),

    names: withFiles((files) => files.names),

    /** Fails where the volume is no filesystem: it is read from the very server that the guest will use. */
    verify: (volumeId: VolumeId) =>
      readSuperblock(volumeId).pipe(
        Effect.filterOrFail(isExt4, () => new NotAFilesystem({ name: volumeId })),
        Effect.asVoid
      ),

    /**
     * Makes the file of this disk, which holds a whole filesystem, the volume: it gets its name when all of it is in
     * ZeroFS's store. One that is there stays.
     */
    put: (
      volumeId: VolumeId,
      file: string,
      sizeBytes: number,
      flushThrough: (name: string) => Effect.Effect<void, { readonly message: string }>
    ) => {
      const name = `${HALF_MADE}${volumeId}-${randomBytes(4).toString("hex")}`
      return Effect.gen(function* () {
        yield* withFiles((files) => files.create(name, sizeBytes))
        yield* copy(file, name)
        const written = yield* readSuperblock(name)
        if (!isExt4(written)) return yield* new NotAFilesystem({ name })
        yield* flushThrough(name)
        yield* withFiles((files) => files.link(name, volumeId)).pipe(
          Effect.catchIf(
            (error) => error._tag === "FileRefused" && error.errno === EEXIST,
            () => Effect.void
          )
        )
        yield* remove(name)
        yield* flushThrough(volumeId)
      }).pipe(Effect.onError(() => Effect.ignore(remove(name))))
    },

    grow: (volumeId: VolumeId, sizeBytes: number) => withFiles((files) => files.resize(volumeId, sizeBytes)),

    remove: (volumeId: VolumeId) => remove(volumeId),

    /** Removes what an earlier daemon left half made. */
    sweep: withFiles((files) =>
      Effect.flatMap(files.names, (names) =>
        Effect.forEach(
          names.filter((name) => name.startsWith(HALF_MADE)),
          files.remove,
          { discard: true }
        )
      )
    ),

    /** All that was written to ZeroFS is in its store. */
    flush: (name: string) =>
      openExport(nbdSocket, name).pipe(
        Effect.flatMap((volume) => volume.flush),
        Effect.scoped,
        within(READ_LIMIT_SECONDS * 2, nbdSocket)
      )
  }
}

/** A sparse file of this disk for as long as the scope lasts, for a filesystem to be made in. */
export const stagingFile = (directory: string, volumeId: VolumeId) => {
  const file = `${directory}/${HALF_MADE}${volumeId}-${randomBytes(4).toString("hex")}`
  return Effect.acquireRelease(
    Effect.tryPromise({
      try: async () => {
        await (await fs.open(file, "wx", 0o600)).close()
        return file
      },
      catch: (error) => ({
        message: `${file} cannot be made: ${error instanceof Error ? error.message : error}`
      })
    }),
    () => Effect.promise(() => fs.rm(file, { force: true }))
  )
}
