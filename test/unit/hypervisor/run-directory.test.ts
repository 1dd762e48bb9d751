import { existsSync, mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import {
  checkRuntimeDir,
  createRunDirectory,
  longestSocketPath,
  MAX_SOCKET_PATH_BYTES,
  removeRunDirectory,
  runDirectory
} from "../../../layers/hypervisor/qemu/run-directory.ts"
import { fakeMachineSpec } from "../../../layers/testing/FakeHost.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const pathOfLength = (bytes: number) => `/${"a".repeat(bytes - 1)}`
const OVERHEAD = longestSocketPath("/r") - 2

describe("the run directory of a VMM", () => {
  it.effect("a runtime_dir that leaves room for every slot's sockets is accepted", () =>
    checkRuntimeDir(pathOfLength(MAX_SOCKET_PATH_BYTES - OVERHEAD))
  )

  it.effect("a runtime_dir that is a byte too long is refused by name, with what to do", () =>
    Effect.gen(function* () {
      const runtimeDir = pathOfLength(MAX_SOCKET_PATH_BYTES - OVERHEAD + 1)
      const error = yield* Effect.flip(checkRuntimeDir(runtimeDir))
      assert.include(error.message, `runtime_dir "${runtimeDir}"`)
      assert.include(error.message, "108 bytes")
      assert.include(error.message, "1 bytes shorter")
    })
  )

  it.effect("the length is counted in bytes, not in characters", () =>
    Effect.gen(function* () {
      const bytes = MAX_SOCKET_PATH_BYTES - OVERHEAD
      yield* checkRuntimeDir(`/${"ü".repeat(Math.floor((bytes - 1) / 2))}`)
      yield* Effect.flip(checkRuntimeDir(`/${"ü".repeat(Math.floor((bytes - 1) / 2) + 1)}`))
    })
  )

  it.effect("is made anew for each machine, and removed only for the machine that it was made for", () =>
    Effect.gen(function* () {
      const directory = runDirectory(yield* temporaryDirectory, 7)
      mkdirSync(directory.path, { recursive: true })
      writeFileSync(join(directory.path, "left-over"), "")
      yield* createRunDirectory(directory, fakeMachineSpec("web", 7, "aaaaaaaaaaaaaaaa"))
      assert.isFalse(existsSync(join(directory.path, "left-over")))
      let released = 0
      const release = Effect.sync(() => {
        assert.strictEqual(existsSync(directory.path), released === 0)
        released += 1
      })
      yield* removeRunDirectory(directory, "bbbbbbbbbbbbbbbb", release)
      assert.isTrue(existsSync(directory.path))
      assert.strictEqual(released, 0)
      yield* removeRunDirectory(directory, "aaaaaaaaaaaaaaaa", release)
      assert.isFalse(existsSync(directory.path))
      yield* removeRunDirectory(directory, "aaaaaaaaaaaaaaaa", release)
      assert.strictEqual(released, 2)
    }).pipe(Effect.provide(NodeServices.layer))
  )
})
