import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as fc from "fast-check"
import { layerDirectoryStore } from "../../../layers/store/directory.ts"
import { keyProblem } from "../../../layers/store/key.ts"
import { ArtifactStore, type ObjectReference } from "../../../src/services/ArtifactStore.ts"
import { killed, startScript } from "../../support/child.ts"
import { temporaryDirectory } from "../../support/temporary.ts"
import { untilEntry } from "../../support/watch.ts"

const sha256 = (text: string | Uint8Array) => createHash("sha256").update(text).digest("hex")

const place = Effect.gen(function* () {
  const root = yield* temporaryDirectory
  const storeDirectory = path.join(root, "store")
  const stateDir = path.join(root, "state")
  yield* Effect.promise(() => fs.mkdir(storeDirectory))
  const fetch = (object: ObjectReference) =>
    ArtifactStore.use((store) => store.fetch(object)).pipe(
      Effect.provide(layerDirectoryStore({ storeDirectory, stateDir }))
    )
  /** What is in the cache, whatever its name. */
  const cached = Effect.promise(() => fs.readdir(path.join(stateDir, "artifacts")))
  return { root, storeDirectory, stateDir, fetch, cached }
})

describe("a directory as an artifact store", () => {
  it.live("follows no symbolic link, whether it leads out of the store or not", () =>
    Effect.gen(function* () {
      const { root, storeDirectory, fetch } = yield* place
      yield* Effect.promise(async () => {
        await fs.mkdir(path.join(root, "outside"))
        await fs.writeFile(path.join(root, "outside", "secret"), "secret")
        await fs.writeFile(path.join(storeDirectory, "inside"), "secret")
        await fs.symlink(path.join(root, "outside"), path.join(storeDirectory, "directory"))
        await fs.symlink(path.join(root, "outside", "secret"), path.join(storeDirectory, "file"))
        await fs.symlink("inside", path.join(storeDirectory, "near"))
      })
      for (const [objectKey, part] of [
        ["directory/secret", "directory"],
        ["file", "file"],
        ["near", "near"]
      ] as const) {
        const error = yield* Effect.flip(fetch({ objectKey, digest: sha256("secret") }))
        assert.strictEqual(error._tag, "StoreUnusable")
        assert.include(error.message, `"${part}" is a symbolic link`)
      }
    })
  )

  it.live("may itself be reached by a symbolic link, as the operator configured it", () =>
    Effect.gen(function* () {
      const { root, storeDirectory, stateDir } = yield* place
      yield* Effect.promise(async () => {
        await fs.writeFile(path.join(storeDirectory, "app"), "app")
        await fs.symlink(storeDirectory, path.join(root, "link"))
      })
      yield* ArtifactStore.use((store) => store.fetch({ objectKey: "app", digest: sha256("app") })).pipe(
        Effect.provide(layerDirectoryStore({ storeDirectory: path.join(root, "link"), stateDir }))
      )
    })
  )

  it.live("takes regular files only, and never waits at a FIFO", () =>
    Effect.gen(function* () {
      const { storeDirectory, fetch } = yield* place
      yield* Effect.promise(() => fs.mkdir(path.join(storeDirectory, "folder")))
      execFileSync("mkfifo", [path.join(storeDirectory, "pipe")])
      const digest = sha256("")
      const folder = yield* Effect.flip(fetch({ objectKey: "folder", digest }))
      assert.strictEqual(folder.message, `object "folder" cannot be fetched: it is a directory`)
      const pipe = yield* Effect.flip(fetch({ objectKey: "pipe", digest }))
      assert.strictEqual(pipe.message, `object "pipe" cannot be fetched: it is not a regular file`)
    })
  )

  it.live("says that an object is missing where a part of its key is a file", () =>
    Effect.gen(function* () {
      const { storeDirectory, fetch } = yield* place
      yield* Effect.promise(() => fs.writeFile(path.join(storeDirectory, "app"), "app"))
      const error = yield* Effect.flip(fetch({ objectKey: "app/1", digest: sha256("app") }))
      assert.strictEqual(error._tag, "ObjectMissing")
    })
  )

  it.live("says which configuration key names a store that is not there, and finds it once it is", () =>
    Effect.gen(function* () {
      const { storeDirectory, fetch } = yield* place
      yield* Effect.promise(() => fs.rmdir(storeDirectory))
      const object = { objectKey: "app", digest: sha256("app") }
      const error = yield* Effect.flip(fetch(object))
      assert.include(error.message, `artifacts.store_url`)
      assert.include(error.message, `${storeDirectory} does not exist`)
      yield* Effect.promise(async () => {
        await fs.mkdir(storeDirectory)
        await fs.writeFile(path.join(storeDirectory, "app"), "app")
      })
      yield* fetch(object)
    })
  )

  it.live("keeps a fetched object read-only, and nothing else beside it", () =>
    Effect.gen(function* () {
      const { storeDirectory, stateDir, fetch, cached } = yield* place
      yield* Effect.promise(() => fs.writeFile(path.join(storeDirectory, "app"), "app"))
      const file = yield* fetch({ objectKey: "app", digest: sha256("app") })
      yield* Effect.flip(fetch({ objectKey: "app", digest: sha256("other") }))
      assert.deepStrictEqual(yield* cached, [sha256("app")])
      const mode = (name: string) => Effect.promise(async () => (await fs.stat(name)).mode & 0o777)
      assert.strictEqual(yield* mode(file), 0o444)
      assert.strictEqual(yield* mode(path.join(stateDir, "artifacts")), 0o700)
    })
  )

  it.live("refuses a digest that is none, so that no name but a digest gets into the cache", () =>
    Effect.gen(function* () {
      const { storeDirectory, fetch } = yield* place
      yield* Effect.promise(() => fs.writeFile(path.join(storeDirectory, "app"), "app"))
      const error = yield* Effect.flip(fetch({ objectKey: "app", digest: "../../app" }))
      assert.include(error.message, "is no sha-256")
    })
  )

  it.live("leaves nothing of a fetch that was interrupted", () =>
    Effect.gen(function* () {
      const { storeDirectory, stateDir, cached } = yield* place
      yield* Effect.promise(async () => {
        await fs.writeFile(path.join(storeDirectory, "big"), "")
        await fs.truncate(path.join(storeDirectory, "big"), 2 ** 31)
      })
      yield* Effect.gen(function* () {
        const store = yield* ArtifactStore
        const started = yield* Effect.forkChild(
          untilEntry(path.join(stateDir, "artifacts"), (name) => name.startsWith(".fetching-")),
          { startImmediately: true }
        )
        const fiber = yield* Effect.forkChild(store.fetch({ objectKey: "big", digest: sha256("") }))
        yield* Fiber.join(started)
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(yield* cached, [])
      }).pipe(Effect.provide(layerDirectoryStore({ storeDirectory, stateDir })))
    })
  )

  it.live("never counts what a killed daemon had half fetched, and clears it away at the next start", () =>
    Effect.gen(function* () {
      const { storeDirectory, stateDir, fetch, cached } = yield* place
      const big = path.join(storeDirectory, "big")
      yield* Effect.promise(async () => {
        await fs.writeFile(big, "")
        await fs.truncate(big, 2 ** 31)
        await fs.mkdir(path.join(stateDir, "artifacts"), { recursive: true })
      })
      const digest = sha256(new Uint8Array(1000))
      const started = yield* Effect.forkChild(
        untilEntry(path.join(stateDir, "artifacts"), (name) => name.startsWith(".fetching-")),
        { startImmediately: true }
      )
      const child = yield* startScript(new URL("../../support/fetch-child.ts", import.meta.url), [
        storeDirectory,
        stateDir,
        "big",
        digest
      ])
      yield* Fiber.join(started)
      yield* killed(child)
      const left = yield* cached
      assert.isTrue(left.length === 1 && left[0]?.startsWith(".fetching-"), left.join())

      yield* Effect.promise(() => fs.truncate(big, 1000))
      yield* fetch({ objectKey: "big", digest })
      assert.deepStrictEqual(yield* cached, [digest])
    })
  )

  it("gives no key a file outside of the store, nor two keys one file", () => {
    const part = fc.oneof(
      fc.constantFrom("", ".", "..", "a", "\0", "...", " ", "\\"),
      fc.string({ unit: "binary", maxLength: 300 })
    )
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 6 }), (parts) => {
        const objectKey = parts.join("/")
        if (keyProblem(objectKey) !== undefined) return
        assert.strictEqual(path.resolve("/store", objectKey), `/store/${objectKey}`)
        assert.isTrue(objectKey.split("/").every((name) => name !== "" && Buffer.byteLength(name) <= 255))
      }),
      { numRuns: 2000 }
    )
  })
})
