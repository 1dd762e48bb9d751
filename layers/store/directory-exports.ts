/** A directory as the store of exports: an object's key is its path in it. */
import { createHash, randomBytes } from "node:crypto"
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import { Effect, Layer, type Scope, Stream } from "effect"
import {
  ExportStore,
  type ExportStoreError,
  type PutOptions,
  type Stored,
  type Storing
} from "../../src/services/ExportStore.ts"
import { StoreUnusable } from "../../src/services/store-errors.ts"
import { openFile, removeFile, removeLeftovers, writeAllOf } from "../files/durable.ts"
import { type FileProblem, ifPresent, onFile } from "../files/problem.ts"
import { makeFlusher } from "./flusher.ts"
import { keyProblem } from "./key.ts"
import { makeThrottled } from "./progress.ts"

const HALF_STORED = ".nibrunner-storing-"

export interface DirectoryExportsOptions {
  /** Absolute; `exports.store_url` of the configuration. */
  readonly storeDirectory: string
  /** Absolute; tells what this host left half stored from what others are storing in the same directory. */
  readonly stateDir: string
}

/**
 * What an earlier daemon left half stored is removed. The store itself may be absent: that is said by each put, and it
 * is not made, since then what should be mounted there is not.
 */
export const layerDirectoryExports = ({ stateDir, storeDirectory }: DirectoryExportsOptions) =>
  Layer.effect(
    ExportStore,
    Effect.gen(function* () {
      const host = createHash("sha256").update(`${os.hostname()}\0${stateDir}`).digest("hex").slice(0, 12)
      const ours = `${HALF_STORED}${host}-`
      yield* ifPresent(removeLeftovers(storeDirectory, ours))
      return { put: makePut(storeDirectory, ours) }
    })
  )

const makePut =
  (root: string, prefix: string) =>
  <E, R>(
    objectKey: string,
    contents: Stream.Stream<Uint8Array, E, R>,
    { onProgress }: PutOptions = {}
  ): Effect.Effect<Stored, ExportStoreError | E, R> =>
    Effect.gen(function* () {
      const target = yield* openTarget(root, objectKey)
      const temporary = `${prefix}${randomBytes(8).toString("hex")}`
      const tell = onProgress === undefined ? undefined : makeThrottled<Storing>(onProgress)
      let sizeBytes = 0

      const write = Effect.gen(function* () {
        const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW
        const file = yield* target.inStore(openFile(target.inRoot(temporary), flags))
        const flush = makeFlusher(Effect.asVoid(onFile(target.name, () => file.datasync())))
        yield* Stream.runForEachArray(contents, (pieces) => {
          const length = pieces.reduce((sum, piece) => sum + piece.byteLength, 0)
          sizeBytes += length
          return target
            .inStore(Effect.andThen(writeAllOf(target.name, file, pieces), flush(length)))
            .pipe(Effect.andThen(tell?.({ objectKey, bytes: sizeBytes }) ?? Effect.void))
        })
        yield* target.inStore(onFile(target.name, () => file.sync()))
      }).pipe(Effect.scoped)

      yield* write.pipe(
        Effect.andThen(target.inStore(target.commit(temporary))),
        Effect.onError(() => Effect.ignore(removeFile(target.inRoot(temporary))))
      )
      if (onProgress !== undefined) yield* onProgress({ objectKey, bytes: sizeBytes })
      return { sizeBytes }
    }).pipe(Effect.scoped)

/** What is done in the store for one key. Its errors are about that key. */
interface Target {
  /** Of the object's file, for a sentence. */
  readonly name: string
  /** The path of a file beside all keys. */
  readonly inRoot: (file: string) => string
  /** Says what is wrong with the store's files as what is wrong with the object. */
  readonly inStore: <A, R>(effect: Effect.Effect<A, FileProblem, R>) => Effect.Effect<A, StoreUnusable, R>
  /** Gives a file of the root the key's name. */
  readonly commit: (file: string) => Effect.Effect<void, FileProblem>
}

/**
 * Opens the store for this key, or says why no file can have it: before the contents are read, which may take long.
 * Each part of the key is opened within the directory that was opened before it (by way of `/proc/self/fd`, Node has
 * no openat), and no symbolic link is followed: nothing that is renamed or linked in the meantime leads out of `root`.
 */
const openTarget = (root: string, objectKey: string): Effect.Effect<Target, ExportStoreError, Scope.Scope> =>
  Effect.gen(function* () {
    const refuse = (reason: string) => new StoreUnusable({ objectKey, operation: "stored", reason })
    const problem = keyProblem(objectKey)
    if (problem !== undefined) return yield* refuse(problem)
    if (objectKey.startsWith(HALF_STORED)) {
      return yield* refuse(`keys that begin with ${HALF_STORED} are for what is half stored`)
    }
    const parts = objectKey.split("/")
    const parents = parts.slice(0, -1)
    const last = parts.at(-1) ?? ""
    const directory = constants.O_RDONLY | constants.O_DIRECTORY

    const top = yield* openFile(root, directory).pipe(
      Effect.mapError((cause) =>
        refuse(`the store of exports cannot be opened (exports.store_url): ${cause.reason}`)
      )
    )
    const inside = (handle: fs.FileHandle, name: string) => `/proc/self/fd/${handle.fd}/${name}`
    const inStore: Target["inStore"] = (effect) =>
      Effect.mapError(effect, (cause) =>
        refuse(cause.reason.replaceAll(/\/proc\/self\/fd\/\d+\/[^/ ]*/gu, `${root}/${objectKey}`))
      )

    /** The directory that the key's file is in; undefined when a part of it is not there and `make` is not asked. */
    const parent = Effect.fnUntraced(function* (make: boolean) {
      let current = top
      for (const part of parents) {
        const place = inside(current, part)
        if (make) yield* makeEntry(current, place)
        const next = yield* ifPresent(openFile(place, directory | constants.O_NOFOLLOW))
        if (next === undefined) return undefined
        current = next
      }
      return current
    })

    const there = yield* inStore(parent(false))
    if (there !== undefined) {
      const stat = yield* inStore(ifPresent(onFile(inside(there, last), () => fs.lstat(inside(there, last)))))
      if (stat?.isDirectory() === true) return yield* refuse("there is a directory of that name")
    }

    const commit = (file: string) =>
      Effect.gen(function* () {
        const into = (yield* parent(true)) ?? top
        yield* onFile(objectKey, () => fs.rename(inside(top, file), inside(into, last)))
        yield* onFile(objectKey, () => into.sync())
      }).pipe(Effect.scoped, Effect.uninterruptible)

    return {
      name: `${root}/${objectKey}`,
      inRoot: (file) => inside(top, file),
      inStore,
      commit
    }
  })

/** Makes a directory unless there is an entry of that name, and lets the disk know of it. */
const makeEntry = (within: fs.FileHandle, place: string): Effect.Effect<void, FileProblem> =>
  onFile(place, () => fs.mkdir(place, { mode: 0o700 })).pipe(
    Effect.andThen(onFile(place, () => within.sync())),
    Effect.catchIf(
      (problem) => problem.code === "EEXIST",
      () => Effect.void
    )
  )
