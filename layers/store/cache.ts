/** `<state_dir>/artifacts/<sha-256>`: every object that was fetched, under the digest of its bytes. */
import { createHash, randomBytes } from "node:crypto"
import { constants } from "node:fs"
import * as path from "node:path"
import { Effect, type Scope, Stream } from "effect"
import {
  type ArtifactStoreError,
  DigestMismatch,
  FetchObserver,
  type ObjectReference,
  StoreUnusable
} from "../../src/services/ArtifactStore.ts"
import {
  commitFile,
  fileSize,
  makeDirectory,
  openFile,
  removeFile,
  removeLeftovers,
  writeAll
} from "../files/durable.ts"
import { type FileProblem, onFile } from "../files/problem.ts"
import { makeSharedWork } from "../files/shared-work.ts"

const HALF_FETCHED = ".fetching-"

/** How a store gives an object's bytes: a stream that is read once, while the scope lasts. */
export type OpenObject = (
  object: ObjectReference
) => Effect.Effect<Stream.Stream<Uint8Array, ArtifactStoreError>, ArtifactStoreError, Scope.Scope>

/**
 * Gives the `fetch` of a store. A file in the cache is known by its name alone: a name is only given to bytes
 * whose digest was computed on their way to the disk and that were flushed to it.
 */
export const makeArtifactCache = (
  stateDir: string,
  open: OpenObject
): Effect.Effect<
  (object: ObjectReference) => Effect.Effect<string, ArtifactStoreError>,
  FileProblem,
  Scope.Scope
> =>
  Effect.gen(function* () {
    const directory = path.join(stateDir, "artifacts")
    yield* makeDirectory(directory, 0o700)
    yield* removeLeftovers(directory, HALF_FETCHED)
    const shared = yield* makeSharedWork<string, ArtifactStoreError>()

    const copy = (object: ObjectReference, temporary: string, onBytes: (bytes: number) => void) =>
      Effect.gen(function* () {
        const bytes = yield* open(object)
        const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
        const file = yield* openFile(temporary, flags)
        const hash = createHash("sha256")
        yield* Stream.runForEach(bytes, (piece) => {
          onBytes(piece.byteLength)
          hash.update(piece)
          return writeAll(directory, file, piece)
        })
        const actual = hash.digest("hex")
        if (actual !== object.digest) {
          return yield* new DigestMismatch({ objectKey: object.objectKey, expected: object.digest, actual })
        }
        yield* onFile(directory, () => file.chmod(0o444))
        yield* onFile(directory, () => file.sync())
      }).pipe(Effect.scoped)

    const transfer = (object: ObjectReference, file: string) =>
      Effect.suspend(() => {
        const temporary = path.join(directory, HALF_FETCHED + randomBytes(8).toString("hex"))
        const began = performance.now()
        let bytes = 0
        const onBytes = (more: number) => {
          bytes += more
        }
        return copy(object, temporary, onBytes).pipe(
          Effect.andThen(commitFile(temporary, file)),
          Effect.as(file),
          Effect.onError(() => Effect.ignore(removeFile(temporary))),
          unusable(object.objectKey),
          Effect.onExit((exit) =>
            Effect.flatMap(FetchObserver, (tell) =>
              tell({ bytes, seconds: (performance.now() - began) / 1000, exit })
            )
          )
        )
      })

    const fetch = (object: ObjectReference): Effect.Effect<string, ArtifactStoreError> =>
      Effect.gen(function* () {
        const { objectKey, digest } = object
        if (!/^[0-9a-f]{64}$/u.test(digest)) {
          return yield* new StoreUnusable({
            objectKey,
            reason: `its digest ${JSON.stringify(digest)} is no sha-256`
          })
        }
        const file = path.join(directory, digest)
        if ((yield* fileSize(file)) !== undefined) return file
        return yield* shared(digest, transfer(object, file)).pipe(
          // The digest was being fetched under another key: what is wrong with that one says nothing of ours.
          Effect.catch((error) => (error.objectKey === objectKey ? Effect.fail(error) : fetch(object)))
        )
      }).pipe(unusable(object.objectKey))

    return fetch
  })

const unusable =
  (objectKey: string) =>
  <A, R>(
    effect: Effect.Effect<A, ArtifactStoreError | FileProblem, R>
  ): Effect.Effect<A, ArtifactStoreError, R> =>
    Effect.catchTag(effect, "FileProblem", (problem) =>
      Effect.fail(new StoreUnusable({ objectKey, reason: problem.reason }))
    )
