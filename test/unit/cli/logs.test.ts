import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock, TestConsole } from "effect/testing"
import { makeHost } from "./harness.ts"
import { rawInstanceReport, rawReport } from "./reports.ts"

const record = (n: number) => `2026-09-23T10:00:00.000Z stdout s/${n} line ${n}`
const records = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, n) => `${record(from + n)}\n`).join("")

/** A host whose app `shop` has printed 150 lines, 100 of them before its log was rotated. */
const withShop = Effect.gen(function* () {
  const host = yield* makeHost()
  yield* host.write("state/logs/shop.log.1", records(0, 100))
  yield* host.write("state/logs/shop.log", records(100, 150))
  return host
})

describe("nibrunnerd logs", () => {
  it.effect("shows the last 100 records, across rotation", () =>
    Effect.gen(function* () {
      const host = yield* withShop
      const { code, err, out } = yield* host.run("logs", "shop")
      assert.strictEqual(code, 0)
      assert.strictEqual(err, "")
      assert.strictEqual(`${out}\n`, records(50, 150))
    })
  )

  it.effect("shows as many as -n says, and all when there are no more", () =>
    Effect.gen(function* () {
      const host = yield* withShop
      assert.strictEqual(
        (yield* host.run("logs", "shop", "-n", "2")).out,
        [record(148), record(149)].join("\n")
      )
      assert.strictEqual((yield* host.run("logs", "-n", "1", "shop")).out, record(149))
      assert.strictEqual((yield* host.run("logs", "shop", "--lines", "0")).out, "")
      assert.lengthOf((yield* host.run("logs", "shop", "-n", "100000")).out.split("\n"), 150)
    })
  )

  it.effect("takes no other number for -n", () =>
    Effect.gen(function* () {
      const host = yield* withShop
      for (const count of ["-1", "many", "1.5"]) {
        const { code, err, out } = yield* host.run("logs", "shop", "-n", count)
        assert.strictEqual(code, 2)
        assert.strictEqual(out, "")
        assert.include(err, "nibrunnerd logs --help")
      }
    })
  )

  it.effect("names the apps that may have been meant when it knows none of that name", () =>
    Effect.gen(function* () {
      const host = yield* withShop
      yield* host.write("state/logs/shop-two.log", records(0, 1))
      yield* host.write(
        "state/reported.json",
        JSON.stringify(rawReport({ instances: [rawInstanceReport("wiki")] }))
      )
      const said = (...args: ReadonlyArray<string>) =>
        Effect.map(host.run("logs", ...args), ({ code, err, out }) => {
          assert.deepStrictEqual([code, out], [1, ""])
          assert.lengthOf(err.split("\n"), 1)
          return err
        })
      assert.strictEqual(yield* said("shpo"), 'nibrunnerd: this host knows no app "shpo". Did you mean shop?')
      assert.include(yield* said("sho"), "Did you mean shop or shop-two?")
      assert.include(yield* said("wikki", "-f"), "Did you mean wiki?")
      assert.include(yield* said("zzzzzzzzzz"), "nibrunnerd status shows the 3 that it knows")
    })
  )

  it.effect("reads nothing but logs, whatever the name says", () =>
    Effect.gen(function* () {
      const host = yield* withShop
      yield* host.write("state/secret.log", "secret\n")
      for (const name of [
        "../secret",
        "shop/../../secret",
        "/etc/passwd",
        "",
        "\u001b[31m",
        "a".repeat(5000)
      ]) {
        const { code, err, out } = yield* host.run("logs", name)
        assert.strictEqual(code, 1)
        assert.strictEqual(out, "")
        assert.notMatch(err, /secret$|\u001b/u)
      }
    })
  )

  it.effect("says of an app that is reported and has no log that it has printed nothing", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      yield* host.write(
        "state/reported.json",
        JSON.stringify(rawReport({ instances: [rawInstanceReport("wiki")] }))
      )
      const { code, err, out } = yield* host.run("logs", "wiki")
      assert.deepStrictEqual([code, err, out], [0, "app wiki has printed nothing yet", ""])
    })
  )

  it.effect("follows with -f until it is interrupted", () =>
    Effect.gen(function* () {
      const host = yield* withShop
      const following = yield* Effect.forkChild(host.run("logs", "shop", "-f", "-n", "1"), {
        startImmediately: true
      })
      const printed = Effect.fnUntraced(function* (count: number) {
        for (;;) {
          const lines = (yield* TestConsole.logLines).flatMap((text) => String(text).split("\n"))
          if (lines.length >= count) return lines
          yield* Effect.promise(() => fs.stat(host.folder))
          yield* TestClock.adjust(50)
        }
      })
      assert.deepStrictEqual(yield* printed(1), [record(149)])
      const log = path.join(host.stateDir, "logs/shop.log")
      yield* Effect.promise(() => fs.appendFile(log, records(150, 152)))
      assert.deepStrictEqual(yield* printed(3), [record(149), record(150), record(151)])
      yield* Effect.promise(() => fs.rename(log, `${log}.1`).then(() => fs.writeFile(log, records(152, 153))))
      assert.strictEqual((yield* printed(4)).at(-1), record(152))
      yield* Fiber.interrupt(following)
    })
  )

  it.effect("lets no log steer the terminal, though the daemon writes none that would", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      yield* host.write("state/logs/shop.log", "\u001b[2J\u009b31m\u202eevil\n")
      const { out } = yield* host.run("logs", "shop")
      assert.include(out, "evil")
      assert.notMatch(out, /[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/u)
    })
  )
})
