/** The filesystem of a new volume: empty, or with its initial contents. */
import { randomBytes } from "node:crypto"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect, Exit, Schema, Semaphore } from "effect"
import { ChildProcessSpawner } from "effect/process"
import { quote } from "../../src/document/quote.ts"
import type { InitialContents } from "../../src/services/VolumeBackend.ts"
import { readRoom, SUPERBLOCK_END } from "../../src/volume/room.ts"
import { destinationIn, rootOf } from "../archive/staging.ts"
import { unpackArchive } from "../archive/unpack.ts"
import { fileSize, makeDirectory, openFile } from "../files/durable.ts"
import { onFile } from "../files/problem.ts"
import { runTool } from "../files/tool.ts"
import { formatExt4 } from "./ext4.ts"

export interface FilesystemOptions {
  /** A regular file that exists. All that it holds is lost. */
  readonly path: string
  /** Bytes. */
  readonly sizeBytes: number
  /** A random one where none is given. */
  readonly uuid?: string
  readonly contents?: InitialContents
}

/** The initial contents of a volume are not what can be put there. `message` is a clause for the volume's sentence. */
export class ContentsRefused extends Schema.TaggedError<ContentsRefused>()("ContentsRefused", {
  objectKey: Schema.String,
  reason: Schema.String
}) {
  override get message() {
    return `its initial contents, object ${quote(this.objectKey)}: the archive ${this.reason}`
  }
}

/** One after the other: each takes a thread, and the disk's whole attention. */
const AT_ONCE = 1

/**
 * Makes filesystems; `stagingDirectory` is where archives are unpacked on their way, on a disk with room for them.
 * What an earlier daemon left there is removed in the background, as is what was read to its end.
 */
export const makeFilesystems = (stagingDirectory: string) =>
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
    yield* makeDirectory(stagingDirectory, 0o700)
    const turns = yield* Semaphore.make(AT_ONCE)

    const remove = (directory: string) =>
      // What cannot be removed now is removed when the daemon starts again.
      Effect.ignore(runTool("rm", ["-rf", "--", directory], { limit: "20 minutes" }), {
        log: "Warn",
        message: `${directory} cannot be removed`
      })

    /** It takes as long to remove many small files as to write them: only who failed waits for it. */
    const withWorkspace = <A, E, R>(use: (directory: string) => Effect.Effect<A, E, R>) => {
      const directory = path.join(stagingDirectory, randomBytes(8).toString("hex"))
      return Effect.acquireUseRelease(
        onFile(stagingDirectory, () => fs.mkdir(directory, { mode: 0o700 })),
        () => use(directory),
        (_, exit) =>
          Exit.isSuccess(exit)
            ? Effect.forkIn(Effect.interruptible(turns.withPermits(1)(remove(directory))), scope)
            : remove(directory)
      )
    }

    const leftovers = yield* onFile(stagingDirectory, () => fs.readdir(stagingDirectory))
    yield* Effect.forEach(leftovers, (name) => remove(path.join(stagingDirectory, name)), {
      discard: true
    }).pipe(Effect.forkIn(scope))

    const fill = (options: FilesystemOptions, contents: InitialContents) =>
      withWorkspace((directory) =>
        Effect.gen(function* () {
          // An empty one says how much fits.
          yield* formatExt4(options)
          const room = yield* roomOf(options.path)
          const { archive, destinationPath, objectKey } = contents
          const refused = (reason: string) => new ContentsRefused({ objectKey, reason })
          yield* unpackArchive({ archive, destinationPath, workspace: directory, room }).pipe(
            Effect.mapError(({ reason }) => refused(reason))
          )
          const tree = { directory: rootOf(directory), owned: destinationIn(directory, destinationPath) }
          yield* formatExt4({ ...options, tree }).pipe(
            Effect.mapError((failure) =>
              failure._tag === "ToolFailed" && /could not allocate|no free space/iu.test(failure.reason)
                ? refused(`does not fit on a volume of ${options.sizeBytes} bytes (${failure.message})`)
                : failure
            )
          )
          const fixes = path.join(directory, "fixes")
          if ((yield* fileSize(fixes)) !== undefined) {
            // It goes on after an error, ends with 0, and says its version where errors go.
            const isError = (line: string) => line.trim() !== "" && !/^debugfs \d/u.test(line)
            yield* runTool("debugfs", ["-w", "-f", fixes, options.path], { limit: "20 minutes", isError })
          }
        })
      ).pipe(turns.withPermits(1))

    return {
      /** Makes the file a hole of `sizeBytes` with a new ext4 on it. The caller flushes it, and removes it on failure. */
      make: ({ contents, ...options }: FilesystemOptions) =>
        (contents === undefined ? formatExt4(options) : fill(options, contents)).pipe(
          Effect.provideService(ChildProcessSpawner.ChildProcessSpawner, spawner)
        )
    }
  })

const roomOf = (file: string) =>
  openFile(file, constants.O_RDONLY).pipe(
    Effect.flatMap((handle) =>
      onFile(file, () => handle.read(Buffer.alloc(SUPERBLOCK_END), 0, SUPERBLOCK_END, 0))
    ),
    Effect.scoped,
    Effect.flatMap(({ buffer }) => {
      const room = readRoom(buffer)
      return room === undefined
        ? Effect.die(new Error(`mke2fs left no ext4 in ${file}`))
        : Effect.succeed(room)
    })
  )
