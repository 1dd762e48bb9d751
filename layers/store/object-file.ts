/** Opens the file that an object key names in a directory, and never one outside of it. */
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { Effect, type Scope } from "effect"
import { type ArtifactStoreError, ObjectMissing, StoreUnusable } from "../../src/services/ArtifactStore.ts"
import { openFile } from "../files/durable.ts"
import { type FileProblem, onFile } from "../files/problem.ts"
import { keyProblem } from "./key.ts"

export interface OpenedFile {
  readonly file: fs.FileHandle
  readonly sizeBytes: number
}

/**
 * Opens the key's file, for as long as the scope lasts. Each part is opened within the directory that was
 * opened before it (by way of `/proc/self/fd`, Node has no openat), and no symbolic link is followed: nothing
 * that is renamed or linked in the meantime leads out of `root`.
 */
export const openObjectFile = (
  root: string,
  objectKey: string
): Effect.Effect<OpenedFile, ArtifactStoreError, Scope.Scope> =>
  Effect.gen(function* () {
    const refuse = (reason: string) => new StoreUnusable({ objectKey, reason })
    const problem = keyProblem(objectKey)
    if (problem !== undefined) return yield* refuse(problem)

    let directory = yield* openFile(root, constants.O_RDONLY | constants.O_DIRECTORY).pipe(
      Effect.mapError((cause) =>
        refuse(`the artifact store cannot be opened (artifacts.store_url): ${cause.reason}`)
      )
    )

    const openPart = (part: string, flags: number) => {
      const place = `/proc/self/fd/${directory.fd}/${part}`
      return openFile(place, constants.O_RDONLY | constants.O_NOFOLLOW | flags).pipe(
        Effect.catch((cause) =>
          isSymbolicLink(place).pipe(
            Effect.flatMap((link): Effect.Effect<never, ArtifactStoreError> => {
              if (link)
                return refuse(`${JSON.stringify(part)} is a symbolic link, and the store follows none`)
              return cause.code === "ENOENT" || cause.code === "ENOTDIR"
                ? new ObjectMissing({ objectKey, store: root })
                : refuse(inStore(cause, place, `${root}/${objectKey}`))
            })
          )
        )
      )
    }

    const parts = objectKey.split("/")
    for (const part of parts.slice(0, -1)) directory = yield* openPart(part, constants.O_DIRECTORY)
    // Without O_NONBLOCK a FIFO would hold the daemon until somebody writes into it.
    const file = yield* openPart(parts.at(-1) ?? "", constants.O_NONBLOCK)
    const stat = yield* onFile(objectKey, () => file.stat()).pipe(
      Effect.mapError((cause) => refuse(cause.reason))
    )
    if (!stat.isFile())
      return yield* refuse(stat.isDirectory() ? "it is a directory" : "it is not a regular file")
    return { file, sizeBytes: stat.size }
  })

const isSymbolicLink = (place: string): Effect.Effect<boolean> =>
  onFile(place, () => fs.lstat(place)).pipe(
    Effect.map((stat) => stat.isSymbolicLink()),
    Effect.orElseSucceed(() => false)
  )

const inStore = (cause: FileProblem, place: string, file: string): string =>
  cause.reason.replaceAll(place, file)
