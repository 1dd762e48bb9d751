import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { isStateDirectoryHeld, lockRuntimeDirectory, lockStateDirectory } from "../../../layers/state/lock.ts"
import { killed, startScript, untilLine } from "../../support/child.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const script = new URL("../../support/state-child.ts", import.meta.url)

describe("the lock on a state directory", () => {
  it.live("is held while a daemon runs, in this process or another, and by nobody else", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      assert.isFalse(yield* isStateDirectoryHeld(stateDir))
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* lockStateDirectory(stateDir)
          assert.isTrue(yield* isStateDirectoryHeld(stateDir))
        })
      )
      assert.isFalse(yield* isStateDirectoryHeld(stateDir))
    })
  )
  it.live("is nobody's once the process that held it was killed", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const child = yield* startScript(script, [stateDir])
      yield* untilLine(child, (line) => line === "open")
      assert.isTrue(yield* isStateDirectoryHeld(stateDir))
      yield* killed(child)
      assert.isFalse(yield* isStateDirectoryHeld(stateDir))
    })
  )
  it.live("is taken by a daemon although somebody looks at it all the time", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      yield* Effect.scoped(lockStateDirectory(stateDir))
      const looking = yield* startScript(script, [stateDir, "look"])
      yield* untilLine(looking, (line) => line === "open")
      for (let round = 0; round < 100; round++) yield* Effect.scoped(lockStateDirectory(stateDir))
    })
  )

  it.live("is there for the sockets of VMMs as well, whatever state directory a second daemon has", () =>
    Effect.gen(function* () {
      const runtimeDir = yield* temporaryDirectory
      yield* lockRuntimeDirectory(runtimeDir)
      const error = yield* Effect.flip(Effect.scoped(lockRuntimeDirectory(runtimeDir)))
      assert.match(error.message, /paths\.runtime_dir/u)
    })
  )
})
