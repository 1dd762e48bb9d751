import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { layerDirectoryExports } from "../../../layers/store/directory-exports.ts"
import { ExportStore } from "../../../src/services/ExportStore.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const place = Effect.gen(function* () {
  const root = yield* temporaryDirectory
  const storeDirectory = path.join(root, "store")
  const outside = path.join(root, "outside")
  yield* Effect.promise(() => Promise.all([fs.mkdir(storeDirectory), fs.mkdir(outside)]))
  const put = (objectKey: string, stateDir = path.join(root, "state")) =>
    ExportStore.use((store) => store.put(objectKey, Stream.succeed(new TextEncoder().encode("bundle")))).pipe(
      Effect.provide(layerDirectoryExports({ storeDirectory, stateDir }))
    )
  return { root, storeDirectory, outside, put }
})

describe("a directory as the store of exports", () => {
  it.live("writes through no symbolic link: not in the key's path, and not under its name", () =>
    Effect.gen(function* () {
      const { storeDirectory, outside, put } = yield* place
      const victim = path.join(outside, "victim")
      yield* Effect.promise(async () => {
        await fs.writeFile(victim, "untouched")
        await fs.symlink(outside, path.join(storeDirectory, "linked"))
        await fs.symlink(victim, path.join(storeDirectory, "bundle"))
      })
      const error = yield* Effect.flip(put("linked/victim"))
      assert.strictEqual(error._tag, "StoreUnusable")
      assert.include(error.message, `${storeDirectory}/linked/victim`)
      yield* put("bundle")
      assert.strictEqual(yield* Effect.promise(() => fs.readFile(victim, "utf8")), "untouched")
      assert.strictEqual(
        yield* Effect.promise(() => fs.readFile(path.join(storeDirectory, "bundle"), "utf8")),
        "bundle"
      )
    })
  )

  it.live("keeps what it stores to itself: an export holds an app's secrets", () =>
    Effect.gen(function* () {
      const { storeDirectory, put } = yield* place
      yield* put("a/b")
      const mode = (name: string) =>
        Effect.promise(async () => (await fs.stat(path.join(storeDirectory, name))).mode & 0o777)
      assert.strictEqual(yield* mode("a/b"), 0o600)
      assert.strictEqual(yield* mode("a"), 0o700)
    })
  )

  it.live("is not made where it is missing, and the sentence names the key of the configuration", () =>
    Effect.gen(function* () {
      const { storeDirectory, put } = yield* place
      yield* Effect.promise(() => fs.rmdir(storeDirectory))
      const error = yield* Effect.flip(put("bundle"))
      assert.include(error.message, "exports.store_url")
      assert.include(error.message, `${storeDirectory} does not exist`)
    })
  )

  it.live("clears away what this host left half stored, and nothing of another host", () =>
    Effect.gen(function* () {
      const { root, storeDirectory, put } = yield* place
      const host = createHash("sha256")
        .update(`${os.hostname()}\0${path.join(root, "state")}`)
        .digest("hex")
      const left = ".nibrunner-storing-0123456789ab-0000"
      yield* Effect.promise(async () => {
        await fs.writeFile(path.join(storeDirectory, left), "another host's")
        await fs.writeFile(path.join(storeDirectory, `.nibrunner-storing-${host.slice(0, 12)}-0000`), "ours")
      })
      yield* put("bundle")
      assert.deepStrictEqual((yield* Effect.promise(() => fs.readdir(storeDirectory))).sort(), [
        left,
        "bundle"
      ])
    })
  )
})
