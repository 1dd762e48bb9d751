import { statfs } from "node:fs/promises"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { makeRoom, reserveOf } from "../../../layers/hypervisor/qemu/snapshot/room.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const GIB = 2 ** 30

describe("room for snapshots", () => {
  it("leaves 8 GiB of a disk free, and of a small one a sixteenth", () => {
    assert.strictEqual(reserveOf(1024 * GIB), 8 * GIB)
    assert.strictEqual(reserveOf(128 * GIB), 8 * GIB)
    assert.strictEqual(reserveOf(64 * GIB), 4 * GIB)
    assert.strictEqual(reserveOf(0), 0)
  })

  it.live("is shared by those that are written side by side, and free again after", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const { bavail, blocks, bsize } = yield* Effect.promise(() => statfs(directory))
      const mine = bavail * bsize - reserveOf(blocks * bsize)
      assert.isAbove(mine, 0)
      const room = makeRoom()
      const most = Math.floor(mine * 0.6)
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* room.take(directory, most)
          const { message, reason } = (yield* Effect.flip(Effect.scoped(room.take(directory, most)))) as {
            readonly message?: string
            readonly reason: string
          }
          assert.isUndefined(message)
          assert.match(reason, /free, the snapshot may take [\d.]+ GiB, and [\d.]+ GiB are kept free$/u)
          assert.include(reason, directory)
        })
      )
      yield* Effect.scoped(room.take(directory, most))
      yield* Effect.flip(Effect.scoped(room.take(directory, 2 * mine)))
    })
  )

  it.live("is not told of a disk that cannot be measured", () =>
    Effect.gen(function* () {
      const { reason } = yield* Effect.flip(Effect.scoped(makeRoom().take("/no/such/place", 1)))
      assert.include(reason, "/no/such/place does not exist")
    })
  )
})
