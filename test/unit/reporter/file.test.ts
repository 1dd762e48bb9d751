import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { layerFileReporter } from "../../../layers/reporter/file.ts"
import { Reporter } from "../../../src/services/Reporter.ts"
import { emptyReport } from "../../support/report.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const place = Effect.map(temporaryDirectory, (root) => {
  const stateDir = path.join(root, "state")
  return { stateDir, file: path.join(stateDir, "reported.json") }
})

describe("the report as a file", () => {
  it.live("is what was written last, for every user of the host to read, alone in its directory", () =>
    Effect.gen(function* () {
      const { stateDir, file } = yield* place
      const former = process.umask(0o077)
      yield* Reporter.use((reporter) =>
        reporter
          .write(JSON.stringify(emptyReport("one")))
          .pipe(Effect.andThen(reporter.write(JSON.stringify(emptyReport("two €")))))
      ).pipe(
        Effect.provide(layerFileReporter({ stateDir })),
        Effect.ensuring(Effect.sync(() => process.umask(former)))
      )
      assert.deepStrictEqual(
        JSON.parse(yield* Effect.promise(() => fs.readFile(file, "utf8"))),
        emptyReport("two €")
      )
      assert.strictEqual((yield* Effect.promise(() => fs.stat(file))).mode & 0o777, 0o644)
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(stateDir)), ["reported.json"])
    })
  )

  it.live("is whole whenever it is read, though it is written all the time by many", () =>
    Effect.gen(function* () {
      const { stateDir, file } = yield* place
      yield* Effect.gen(function* () {
        const reporter = yield* Reporter
        yield* reporter.write(JSON.stringify(emptyReport("first")))
        const writing = yield* Effect.forkChild(
          Effect.forEach(
            Array.from({ length: 60 }),
            (_, n) => reporter.write(JSON.stringify(emptyReport(`${n}`.repeat(100_000 * (1 + (n % 2)))))),
            { concurrency: 4, discard: true }
          )
        )
        let reads = 0
        while (writing.pollUnsafe() === undefined) {
          const text = yield* Effect.promise(() => fs.readFile(file, "utf8"))
          assert.strictEqual(JSON.parse(text).hostId, "h")
          reads += 1
        }
        yield* Fiber.join(writing)
        assert.isAbove(reads, 1)
      }).pipe(Effect.provide(layerFileReporter({ stateDir })))
    })
  )

  it.live("says why it cannot be written, and is written again when it can", () =>
    Effect.gen(function* () {
      const { stateDir, file } = yield* place
      yield* Effect.gen(function* () {
        const reporter = yield* Reporter
        yield* Effect.promise(() => fs.mkdir(file))
        const error = yield* Effect.flip(reporter.write(JSON.stringify(emptyReport("x"))))
        assert.strictEqual(error.message, `the report ${file} cannot be written: ${file} is a directory`)
        yield* Effect.promise(() => fs.rmdir(file))
        yield* reporter.write(JSON.stringify(emptyReport("x")))
      }).pipe(Effect.provide(layerFileReporter({ stateDir })))
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(stateDir)), ["reported.json"])
    })
  )
})
