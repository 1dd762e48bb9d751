import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { layerFileLogs, logFiles } from "../../../layers/logs/file.ts"
import { AppId } from "../../../src/document/schema.ts"
import { type AppLog, AppLogs } from "../../../src/services/AppLogs.ts"
import { recordedLog } from "../../support/log.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const web = AppId.make("web")
const KIB = 1024
const print = (log: AppLog, text: string) => log.output("stdout", new TextEncoder().encode(text))

const read = (file: string) => Effect.promise(() => fs.readFile(file, "utf8"))
const exists = (file: string) =>
  Effect.promise(() =>
    fs.stat(file).then(
      () => true,
      () => false
    )
  )

/** A session of the app `web`, for as long as the scope lasts. */
const open = (stateDir: string, keepBytes = 256 * KIB) =>
  Layer.build(layerFileLogs({ stateDir, keepBytes })).pipe(
    Effect.flatMap((services) => Context.get(services, AppLogs).open(web, "s"))
  )

const textOf = (record: string): string => record.split(" ").slice(3).join(" ")

describe("an app's log as a file", () => {
  it.live("is in a directory that only the daemon's user may enter", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      yield* open(stateDir)
      const { mode } = yield* Effect.promise(() => fs.stat(path.join(stateDir, "logs")))
      assert.strictEqual(mode & 0o777, 0o700)
    })
  )

  it.live("has 20,000 numbered lines in order", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const [current] = logFiles(stateDir, web)
      const lines = Array.from({ length: 20_000 }, (_, n) => `line ${n}`)
      yield* Effect.scoped(
        Effect.flatMap(open(stateDir, 256 * 2 ** 20), (log) => {
          const all = Buffer.from(`${lines.join("\n")}\n`)
          const pieces = Array.from({ length: Math.ceil(all.length / 8192) }, (_, n) =>
            all.subarray(n * 8192, (n + 1) * 8192)
          )
          return Effect.forEach(pieces, (piece) => log.output("stdout", piece), { discard: true })
        })
      )
      const records = (yield* read(current)).split("\n").slice(0, -1)
      assert.deepStrictEqual(records.map(textOf), lines)
    })
  )

  it.live(
    "is rotated into two files of at most the kept size each, between lines, with no line lost between",
    () =>
      Effect.gen(function* () {
        const stateDir = yield* temporaryDirectory
        const [current, previous] = logFiles(stateDir, web)
        yield* Effect.scoped(
          Effect.flatMap(open(stateDir), (log) =>
            Effect.forEach(
              Array.from({ length: 600 }),
              (_, n) => print(log, Array.from({ length: 100 }, (__, m) => `line ${n * 100 + m}\n`).join("")),
              { discard: true }
            )
          )
        )
        assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(path.join(stateDir, "logs"))), [
          "web.log",
          "web.log.1"
        ])
        const [older, newer] = [yield* read(previous), yield* read(current)]
        assert.isAtMost(Buffer.byteLength(older), 256 * KIB)
        assert.isAbove(Buffer.byteLength(older), 255 * KIB)
        assert.isAtMost(Buffer.byteLength(newer), 256 * KIB)
        const records = (older + newer).split("\n").slice(0, -1)
        const first = Number(textOf(records[0] ?? "").slice("line ".length))
        assert.deepStrictEqual(
          records.map(textOf),
          Array.from({ length: 60_000 - first }, (_, n) => `line ${first + n}`)
        )
      })
  )

  it.live("is rotated also where one piece of output is larger than what is kept", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const [current, previous] = logFiles(stateDir, web)
      yield* Effect.scoped(
        Effect.flatMap(open(stateDir, 4 * KIB), (log) =>
          print(log, Array.from({ length: 2000 }, (_, n) => `line ${n}\n`).join(""))
        )
      )
      assert.isAtMost((yield* read(current)).length, 4 * KIB)
      assert.isAtMost((yield* read(previous)).length, 4 * KIB)
      assert.isTrue((yield* read(current)).endsWith(" line 1999\n"))
    })
  )

  it.live("holds a line that is longer than what is kept, in a file of its own", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const [current, previous] = logFiles(stateDir, web)
      yield* Effect.scoped(
        Effect.flatMap(open(stateDir, KIB), (log) => print(log, `short\n${"x".repeat(5000)}\nlast\n`))
      )
      assert.strictEqual(textOf((yield* read(previous)).trimEnd()), "x".repeat(5000))
      assert.strictEqual(textOf((yield* read(current)).trimEnd()), "last")
    })
  )

  it.live("is deleted with its older file when the app is forgotten", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      yield* Effect.gen(function* () {
        const logs = yield* AppLogs
        yield* Effect.scoped(
          Effect.flatMap(logs.open(web, "s"), (log) => print(log, "0123456789\n".repeat(200)))
        )
        yield* logs.forget(web)
      }).pipe(Effect.provide(layerFileLogs({ stateDir, keepBytes: 4 * KIB })))
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(path.join(stateDir, "logs"))), [])
    })
  )

  it.live("is begun anew when somebody moves the file away", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const [current] = logFiles(stateDir, web)
      const log = yield* open(stateDir)
      yield* print(log, "one\n")
      yield* Effect.promise(() => fs.rename(current, `${current}.away`))
      yield* print(log, "two\n")
      assert.strictEqual(textOf((yield* read(`${current}.away`)).trimEnd()), "one")
      assert.strictEqual(textOf((yield* read(current)).trimEnd()), "two")
    })
  )

  it.live("goes on, on a line of its own, after half a record of a daemon that was killed", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const [current] = logFiles(stateDir, web)
      yield* Effect.promise(async () => {
        await fs.mkdir(path.dirname(current))
        await fs.writeFile(current, "1970-01-01T00:00:00.000Z stdout s/0 hal")
      })
      yield* print(yield* open(stateDir), "whole\n")
      assert.deepStrictEqual((yield* read(current)).split("\n").map(textOf), ["hal", "whole", ""])
    })
  )

  it.live("that cannot be written stops nobody: it is said once, and again when it works", () =>
    Effect.gen(function* () {
      const { lines, layer } = recordedLog()
      const stateDir = yield* temporaryDirectory
      const [current] = logFiles(stateDir, web)
      yield* Effect.gen(function* () {
        yield* Effect.promise(() => fs.mkdir(current, { recursive: true }))
        const log = yield* open(stateDir)
        yield* print(log, "lost\n")
        yield* print(log, "lost too\nand this\n")
        assert.deepStrictEqual(lines, [
          `Warn the log of app web cannot be written, its lines are lost: ${current} is a directory`
        ])
        yield* Effect.promise(() => fs.rmdir(current))
        yield* print(log, "kept\n")
      }).pipe(Effect.provide(layer))
      assert.strictEqual(lines[1], "Warn the log of app web is written again; up to 3 lines were lost")
      assert.strictEqual(textOf((yield* read(current)).trimEnd()), "kept")
    })
  )

  it.live("follows no symbolic link", () =>
    Effect.gen(function* () {
      const { lines, layer } = recordedLog()
      const stateDir = yield* temporaryDirectory
      const [current] = logFiles(stateDir, web)
      const target = path.join(stateDir, "target")
      yield* Effect.promise(async () => {
        await fs.mkdir(path.dirname(current))
        await fs.symlink(target, current)
      })
      yield* Effect.flatMap(open(stateDir), (log) => print(log, "x\n")).pipe(Effect.provide(layer))
      assert.include(lines[0], "is a symbolic link")
      assert.isFalse(yield* exists(target))
    })
  )
})
