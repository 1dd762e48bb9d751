import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Scope } from "effect"
import { sweepSnapshots } from "../../../layers/hypervisor/qemu/snapshot/files.ts"
import { layerHostDirectories } from "../../../layers/state/directories.ts"
import { isHeld, lockDirectory } from "../../../layers/state/lock.ts"
import { HostDirectories, type OwnDirectory } from "../../../src/services/HostDirectories.ts"
import { killed, startScript, untilLine } from "../../support/child.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const script = new URL("../../support/state-child.ts", import.meta.url)

const newState = Effect.map(
  temporaryDirectory,
  (directory): OwnDirectory => ({ key: "paths.state_dir", path: directory })
)

describe("the lock on a directory", () => {
  it.live("is held while a daemon runs, in this process or another, and by nobody else", () =>
    Effect.gen(function* () {
      const state = yield* newState
      assert.isFalse(yield* isHeld(state))
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* lockDirectory(state)
          assert.isTrue(yield* isHeld(state))
        })
      )
      assert.isFalse(yield* isHeld(state))
    })
  )
  it.live("is nobody's once the process that held it was killed", () =>
    Effect.gen(function* () {
      const state = yield* newState
      const child = yield* startScript(script, [state.path])
      yield* untilLine(child, (line) => line === "open")
      assert.isTrue(yield* isHeld(state))
      yield* killed(child)
      assert.isFalse(yield* isHeld(state))
    })
  )
  it.live("is taken by a daemon although somebody looks at it all the time", () =>
    Effect.gen(function* () {
      const state = yield* newState
      yield* Effect.scoped(lockDirectory(state))
      const looking = yield* startScript(script, [state.path, "look"])
      yield* untilLine(looking, (line) => line === "open")
      for (let round = 0; round < 100; round++) yield* Effect.scoped(lockDirectory(state))
    })
  )

  const keys = [
    "paths.state_dir",
    "paths.runtime_dir",
    "paths.snapshot_dir",
    "volumes.zerofs.checkpoint_runtime_dir"
  ] as const
  it.live.each(keys)("keeps a second daemon from the directory that %s names, by that name", (key) =>
    Effect.gen(function* () {
      const directory = path.join(yield* temporaryDirectory, "new")
      yield* lockDirectory({ key, path: directory })
      const error = yield* Effect.flip(Effect.scoped(lockDirectory({ key, path: directory })))
      assert.strictEqual(
        error.message,
        `the daemon with pid ${process.pid} is using ${directory} (${key}); two daemons must not share it`
      )
    })
  )

  it.live("is no snapshot: what is swept of snapshot_dir leaves it", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const snapshots: OwnDirectory = { key: "paths.snapshot_dir", path: directory }
      yield* lockDirectory(snapshots)
      yield* Effect.promise(() => fs.mkdir(path.join(directory, "app-1")))
      yield* Effect.promise(() => fs.writeFile(path.join(directory, "app-1", "memory"), ""))
      assert.deepStrictEqual(yield* sweepSnapshots(directory, []), ["app-1"])
      assert.isTrue(yield* isHeld(snapshots))
    })
  )

  it.live("says which directory cannot be locked, and why", () =>
    Effect.gen(function* () {
      const file = path.join(yield* temporaryDirectory, "file")
      yield* Effect.promise(() => fs.writeFile(file, ""))
      const error = yield* Effect.flip(
        Effect.scoped(lockDirectory({ key: "paths.snapshot_dir", path: file }))
      )
      assert.strictEqual(
        error.message,
        `${file} (paths.snapshot_dir) cannot be locked: a part of the path ${file}/.daemon is not a directory`
      )
    })
  )
})

describe("the directories of a daemon", () => {
  const begun = Effect.gen(function* () {
    const folder = yield* temporaryDirectory
    const own: ReadonlyArray<OwnDirectory> = [
      { key: "paths.state_dir", path: path.join(folder, "state") },
      { key: "paths.runtime_dir", path: path.join(folder, "run") }
    ]
    const scope = yield* Scope.make()
    yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
    const built = yield* Layer.buildWithScope(layerHostDirectories(own), scope)
    const lost = HostDirectories.use((directories) => directories.lost).pipe(
      Effect.provide(built),
      Effect.map((all) => all.map(({ key }) => key))
    )
    const [state, run] = own.map((one) => one.path) as [string, string]
    return { lost, state, run }
  })

  it.live("are lost when they are moved away, and there again when they are moved back", () =>
    Effect.gen(function* () {
      const { lost, state } = yield* begun
      assert.deepStrictEqual(yield* lost, [])
      yield* Effect.promise(() => fs.rename(state, `${state}.old`))
      assert.deepStrictEqual(yield* lost, ["paths.state_dir"])
      yield* Effect.promise(() => fs.rename(`${state}.old`, state))
      assert.deepStrictEqual(yield* lost, [])
      assert.isTrue(yield* isHeld({ key: "paths.state_dir", path: state }))
    })
  )

  it.live("are lost when they are emptied, and when others were made under their names", () =>
    Effect.gen(function* () {
      const { lost, run, state } = yield* begun
      yield* Effect.promise(async () => {
        await fs.rm(path.join(run, "daemon"), { recursive: true })
        await fs.rename(state, `${state}.old`)
        await fs.cp(`${state}.old`, state, { recursive: true })
      })
      assert.deepStrictEqual(yield* lost, ["paths.state_dir", "paths.runtime_dir"])
    })
  )

  it.live("are not one and the same, by whatever names", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryDirectory
      const state = path.join(folder, "state")
      const snapshots = path.join(folder, "snapshots")
      yield* Effect.promise(async () => {
        await fs.mkdir(state)
        await fs.symlink("state", snapshots)
      })
      const built = Layer.build(
        layerHostDirectories([
          { key: "paths.state_dir", path: state },
          { key: "paths.snapshot_dir", path: snapshots }
        ])
      )
      assert.strictEqual(
        (yield* Effect.flip(built)).message,
        `paths.snapshot_dir leads to ${state}, as does paths.state_dir: each needs a directory of its own`
      )
    })
  )
})
