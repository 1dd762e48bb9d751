import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { runTool } from "../../../layers/files/tool.ts"
import { isRunning } from "../../support/child.ts"
import { temporaryDirectory } from "../../support/temporary.ts"
import { untilEntry } from "../../support/watch.ts"

const shell = (script: string, ...args: ReadonlyArray<string>) =>
  runTool("sh", ["-c", script, ...args]).pipe(Effect.provide(NodeServices.layer))

describe("a tool of the host", () => {
  it.live("that succeeds says nothing, whatever it printed", () => shell("echo out; echo warning >&2"))

  it.live("that fails is quoted with the last line that it said", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(shell("echo first >&2; printf 'last\\r\\n\\n  ' >&2; exit 7"))
      assert.strictEqual(error.message, "sh failed (exit code 7): last")
      const silent = yield* Effect.flip(shell("exit 1"))
      assert.strictEqual(silent.message, "sh failed (exit code 1): it said nothing")
    })
  )

  it.live("is quoted briefly, however much it says", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(shell("head -c 5000000 /dev/zero | tr '\\0' x >&2; exit 1"))
      assert.strictEqual(error.message, `sh failed (exit code 1): ${"x".repeat(200)}`)
    })
  )

  it.live("that is killed fails", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(shell("kill -9 $$"))
      assert.match(error.message, /^sh could not be run: /u)
    })
  )

  it.live("that is not on the host is said to be missing", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(
        runTool("no-such-program-on-this-host", []).pipe(Effect.provide(NodeServices.layer))
      )
      assert.strictEqual(error.message, "no-such-program-on-this-host is not installed")
    })
  )

  it.live("does not see the daemon's environment, where credentials may be", () =>
    Effect.gen(function* () {
      process.env.NIBRUNNER_TEST_SECRET = "hunter2"
      const error = yield* Effect.flip(shell("env | sort | tr '\\n' ' ' >&2; exit 1"))
      assert.notInclude(error.message, "hunter2")
      assert.include(error.message, "LC_ALL=C")
    }).pipe(
      Effect.ensuring(
        Effect.sync(() => {
          delete process.env.NIBRUNNER_TEST_SECRET
        })
      )
    )
  )

  it.effect("that hangs is ended after 120 s, with all that it started", () =>
    Effect.gen(function* () {
      const marks = yield* temporaryDirectory
      const started = yield* Effect.forkChild(
        untilEntry(marks, (name) => name === "pid"),
        { startImmediately: true }
      )
      const tool = yield* Effect.forkChild(
        Effect.flip(shell(`sleep 1000 & echo $! > "$0/new"; mv "$0/new" "$0/pid"; wait`, marks))
      )
      yield* Fiber.join(started)
      yield* TestClock.adjust("119 seconds")
      assert.isUndefined(tool.pollUnsafe())
      yield* TestClock.adjust("1 seconds")
      // Ending a process is real; should it ignore SIGTERM, the clock must go on for SIGKILL.
      while (tool.pollUnsafe() === undefined) {
        yield* TestClock.adjust(100)
        yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
      }
      const error = yield* Fiber.join(tool)
      assert.strictEqual(error.message, "sh did not end within 120 seconds and was stopped")
      const pid = Number(yield* Effect.promise(() => fs.readFile(path.join(marks, "pid"), "utf8")))
      assert.isFalse(yield* isRunning(pid))
    })
  )
})
