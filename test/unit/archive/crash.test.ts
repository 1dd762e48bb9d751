import { fork } from "node:child_process"
import { once } from "node:events"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { untilEntry } from "../../support/watch.ts"
import { leftovers, provision, readVolume, workbench } from "./support.ts"

const MANY = "mkdir t; for n in $(seq 1 400); do echo $n > t/f$n; done; tar -czf archive -C t ."

describe("a volume with initial contents", () => {
  it.live("is made whole by the next daemon when one was killed while it unpacked", () =>
    Effect.gen(function* () {
      const bench = yield* workbench
      const archive = bench.made(MANY)
      const staging = path.join(bench.stateDir, "initial-contents")
      fs.mkdirSync(staging)
      const begun = yield* Effect.forkChild(
        untilEntry(staging, () => true),
        { startImmediately: true }
      )
      const script = path.join(import.meta.dirname, "../../../bench/seed/child.ts")
      const child = fork(script, [bench.stateDir, archive, String(16 * 2 ** 20)], {
        stdio: "ignore",
        execArgv: []
      })
      const ended = once(child, "exit")
      yield* Fiber.join(begun)
      child.kill("SIGKILL")
      yield* Effect.promise(() => ended)
      yield* provision(bench, archive)
      const volume = readVolume(bench)
      volume.check()
      assert.lengthOf(volume.names("/upper/app/data"), 400)
      assert.strictEqual(volume.text("/upper/app/data/f400"), "400\n")
    })
  )

  it.live("leaves nothing when its making is interrupted while it unpacks", () =>
    Effect.gen(function* () {
      const bench = yield* workbench
      const archive = bench.made(MANY)
      const staging = path.join(bench.stateDir, "initial-contents")
      fs.mkdirSync(staging)
      const begun = yield* Effect.forkChild(
        untilEntry(staging, () => true),
        { startImmediately: true }
      )
      const making = yield* Effect.forkChild(provision(bench, archive), { startImmediately: true })
      yield* Fiber.join(begun)
      yield* Fiber.interrupt(making)
      assert.deepStrictEqual(leftovers(bench), [])
    })
  )
})
