/** `<state_dir>/artifacts/<sha-256>`: every object that was fetched, under the digest of its bytes. */
import { createHash, randomBytes } from "node:crypto"
import { constants } from "node:fs"
import * as path from "node:path"
import { Effect, type Scope, Stream } from "effect"
import {
  type ArtifactStoreError,
  DigestMismatch,
  type Fetching,
  FetchObserver,
  FetchProgress,
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
  writeAllOf
} from "../files/durable.ts"
import { type FileProblem, onFile } from "../files/problem.ts"
import { makeSharedWork } from "../files/shared-work.ts"
import { makeFlusher } from "./flusher.ts"
import { makeThrottled } from "./progress.ts"

const HALF_FETCHED = ".fetching-"

/** An object that a store has opened. */
export interface OpenedObject {
  /** Undefined when the store does not say it. */
  readonly sizeBytes: number | undefined
  /** Read once, while the scope lasts; a piece is only good until the next array is asked for. */
  readonly bytes: Stream.Stream<Uint8Array, ArtifactStoreError>
}

/** How a store gives an object's bytes. */
export type OpenObject = (
  object: ObjectReference
) => Effect.Effect<OpenedObject, ArtifactStoreError, Scope.Scope>

type Tell = (fetching: Fetching) => Effect.Effect<void>

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
    /** Who waits for which digest, and wants to know how far it is. */
    const waiting = new Map<string, Set<Tell>>()

    const copy = (object: ObjectReference, temporary: string, onBytes: OnBytes) =>
      Effect.gen(function* () {
        const { bytes, sizeBytes } = yield* open(object)
        const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
        const file = yield* openFile(temporary, flags)
        const hash = createHash("sha256")
        const flush = makeFlusher(Effect.asVoid(onFile(directory, () => file.datasync())))
        yield* Stream.runForEachArray(bytes, (pieces) => {
          let length = 0
          for (const piece of pieces) {
            length += piece.byteLength
            hash.update(piece)
          }
          return writeAllOf(directory, file, pieces).pipe(
            Effect.andThen(flush(length)),
            Effect.andThen(onBytes(length, sizeBytes))
          )
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
        const tell = makeThrottled((fetching: Fetching) =>
          Effect.forEach([...(waiting.get(object.digest) ?? [])], (each) => each(fetching), { discard: true })
        )
        const onBytes: OnBytes = (more, totalBytes) => {
          bytes += more
          return tell({
            objectKey: object.objectKey,
            bytes,
            ...(totalBytes === undefined ? {} : { totalBytes })
          })
        }
        return copy(object, temporary, onBytes).pipe(
          Effect.andThen(commitFile(temporary, file)),
          Effect.as(file),
          Effect.onError(() => Effect.ignore(removeFile(temporary))),
          unusable(object.objectKey),
          Effect.onExit((exit) =>
            Effect.flatMap(FetchObserver, (observe) =>
              observe({ bytes, seconds: (performance.now() - began) / 1000, exit })
            )
          )
        )
      })

    /** Runs the fetch with its caller among those who are told how far it is. */
    const told = <A, E>(digest: string, fetching: Effect.Effect<A, E>) =>
      Effect.flatMap(FetchProgress, (tell) =>
        Effect.acquireUseRelease(
          Effect.sync(() => {
            const others = waiting.get(digest) ?? new Set()
            waiting.set(digest, others)
            // One of its own each time: the same observer may wait twice.
            const mine: Tell = (progress) => tell(progress)
            others.add(mine)
            return { mine, others }
          }),
          () => fetching,
          ({ mine, others }) =>
            Effect.sync(() => {
              others.delete(mine)
              if (others.size === 0 && waiting.get(digest) === others) waiting.delete(digest)
            })
        )
      )

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
        return yield* told(digest, shared(digest, transfer(object, file))).pipe(
          // The digest was being fetched under another key: what is wrong with that one says nothing of ours.
          Effect.catch((error) => (error.objectKey === objectKey ? Effect.fail(error) : fetch(object)))
        )
      }).pipe(unusable(object.objectKey))

    return fetch
  })

type OnBytes = (more: number, totalBytes: number | undefined) => Effect.Effect<void>

const unusable =
  (objectKey: string) =>
  <A, R>(
    effect: Effect.Effect<A, ArtifactStoreError | FileProblem, R>
  ): Effect.Effect<A, ArtifactStoreError, R> =>
    Effect.catchTag(effect, "FileProblem", (problem) =>
      Effect.fail(new StoreUnusable({ objectKey, reason: problem.reason }))
    )
