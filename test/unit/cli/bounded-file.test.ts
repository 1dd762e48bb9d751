import { execFileSync } from "node:child_process"
import { symlinkSync, truncateSync, writeFileSync } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, type FileSystem } from "effect"
import { readBounded, readBoundedText } from "../../../src/cli/bounded-file.ts"
import { temporaryDirectory } from "../../support/temporary.ts"
import { makeHost } from "./harness.ts"

const inFolder = <A, E>(use: (folder: string) => Effect.Effect<A, E, FileSystem.FileSystem>) =>
  Effect.flatMap(temporaryDirectory, use).pipe(Effect.provide(NodeFileSystem.layer))

describe("a file that a command is to read", () => {
  it.live("is read whole, a pipe too, as who writes `<(…)` in a shell has it", () =>
    inFolder((folder) =>
      Effect.gen(function* () {
        writeFileSync(join(folder, "file"), "a text")
        assert.strictEqual(yield* readBoundedText(join(folder, "file")), "a text")
        execFileSync("mkfifo", [join(folder, "pipe")])
        const reading = yield* Effect.forkChild(readBoundedText(join(folder, "pipe")))
        yield* Effect.promise(() => fs.writeFile(join(folder, "pipe"), "a piped text"))
        assert.strictEqual(yield* Fiber.join(reading), "a piped text")
      })
    )
  )

  it.live("is refused unread when it is too large, has no end, or is not there", () =>
    inFolder((folder) =>
      Effect.gen(function* () {
        const refused = (name: string) =>
          Effect.map(Effect.flip(readBounded(join(folder, name))), ({ missing, reason }) => ({
            missing,
            reason
          }))
        writeFileSync(join(folder, "large"), "{")
        truncateSync(join(folder, "large"), 2 ** 40)
        symlinkSync("/dev/zero", join(folder, "endless"))
        assert.deepStrictEqual(yield* refused("large"), {
          missing: false,
          reason: "it has 1099511627776 bytes, and at most 67108864 are read"
        })
        assert.deepStrictEqual(yield* refused("endless"), {
          missing: false,
          reason: "it is a device, and no file"
        })
        assert.deepStrictEqual(yield* refused("none"), { missing: true, reason: "there is no such file" })
        assert.deepStrictEqual(yield* refused("."), { missing: false, reason: "it is a directory" })
      })
    )
  )

  it.effect("is refused by each command with its own sentence", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const large = yield* host.write("state/reported.json", "{")
      truncateSync(large, 2 ** 40)
      const tooLarge = "cannot be read: it has 1099511627776 bytes, and at most 67108864 are read"
      for (const args of [["status"], ["plan", large], ["check", large]]) {
        const { code, err, out } = yield* host.run(...args)
        assert.strictEqual(code, 1)
        assert.include(err + out, tooLarge)
      }
    })
  )
})
