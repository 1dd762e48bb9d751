import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Queue, Stream } from "effect"
import fc from "fast-check"
import { layerFileLogs, logFiles } from "../../../layers/logs/file.ts"
import { layerFileLogReader } from "../../../layers/logs/read.ts"
import { AppId } from "../../../src/document/schema.ts"
import { AppLogs } from "../../../src/services/AppLogs.ts"
import { type LogRange, LogReader } from "../../../src/services/LogReader.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const app = AppId.make("shop")

const recordsOf = (stateDir: string, range: LogRange) =>
  Stream.unwrap(LogReader.useSync((reader) => reader.records(app, range))).pipe(
    Stream.provide(layerFileLogReader({ stateDir }))
  )

const last = (stateDir: string, count: number) =>
  Stream.runCollect(recordsOf(stateDir, { last: count, follow: false }))

/** A state directory whose logs hold these texts. */
const withFiles = (current: string | undefined, previous: string | undefined) =>
  Effect.tap(temporaryDirectory, (stateDir) =>
    Effect.promise(async () => {
      await fs.mkdir(path.join(stateDir, "logs"))
      const [newer, older] = logFiles(stateDir, app)
      if (current !== undefined) await fs.writeFile(newer, current)
      if (previous !== undefined) await fs.writeFile(older, previous)
    })
  )

/** What a follower has been given so far, and how to wait for more. */
const followed = Effect.fnUntraced(function* (stateDir: string, count: number) {
  const queue = yield* Queue.unbounded<string>()
  yield* recordsOf(stateDir, { last: count, follow: true }).pipe(
    Stream.runForEach((line) => Queue.offer(queue, line)),
    Effect.forkScoped
  )
  return (lines: number) => Effect.timeout(Queue.takeN(queue, lines), "20 seconds")
})

const append = (file: string, text: string) => Effect.promise(() => fs.appendFile(file, text))

describe("the newest records of a log", () => {
  it.live("are read across its two files, oldest first", () =>
    Effect.gen(function* () {
      const stateDir = yield* withFiles("c\nd\n", "a\nb\n")
      assert.deepStrictEqual(yield* last(stateDir, 3), ["b", "c", "d"])
      assert.deepStrictEqual(yield* last(stateDir, 100), ["a", "b", "c", "d"])
      assert.deepStrictEqual(yield* last(stateDir, 2), ["c", "d"])
      assert.deepStrictEqual(yield* last(stateDir, 0), [])
    })
  )

  it.live("are none of a log that is not there, and those of the older file alone when that is", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* last(yield* withFiles(undefined, undefined), 5), [])
      assert.deepStrictEqual(yield* last(yield* temporaryDirectory, 5), [])
      assert.deepStrictEqual(yield* last(yield* withFiles(undefined, "a\n"), 5), ["a"])
    })
  )

  it.live("end with a record that the host has not finished", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* last(yield* withFiles("a\nhalf", undefined), 1), ["half"])
      assert.deepStrictEqual(yield* last(yield* withFiles("a\nhalf", undefined), 2), ["a", "half"])
    })
  )

  it.live("are the last so many of all, whatever their lengths and wherever the files part", () => {
    const line = fc.oneof(
      fc.stringMatching(/^[a-zä€]{0,8}$/u),
      fc.nat(3).map((more) => "x".repeat(65_534 + more))
    )
    const lines = fc.array(line, { maxLength: 12 })
    return Effect.gen(function* () {
      const stateDir = yield* withFiles("", "")
      const [newer, older] = logFiles(stateDir, app)
      yield* Effect.promise(() =>
        fc.assert(
          fc.asyncProperty(lines, lines, fc.nat(15), async (before, after, count) => {
            const text = (some: ReadonlyArray<string>) => some.map((one) => `${one}\n`).join("")
            await fs.writeFile(older, text(before))
            await fs.writeFile(newer, text(after))
            const all = [...before, ...after]
            assert.deepStrictEqual(
              await Effect.runPromise(last(stateDir, count)),
              all.slice(Math.max(0, all.length - count))
            )
          }),
          { numRuns: 200 }
        )
      )
    })
  })
})

describe("a log that is followed", () => {
  it.live("gives its newest records and then each as it is written, whole", () =>
    Effect.gen(function* () {
      const stateDir = yield* withFiles("a\nb\n", undefined)
      const [newer] = logFiles(stateDir, app)
      const take = yield* followed(stateDir, 1)
      assert.deepStrictEqual(yield* take(1), ["b"])
      yield* append(newer, "c\nhal")
      assert.deepStrictEqual(yield* take(1), ["c"])
      yield* append(newer, "f\n")
      assert.deepStrictEqual(yield* take(1), ["half"])
    })
  )

  it.live("is waited for when there is none yet", () =>
    Effect.gen(function* () {
      const stateDir = yield* withFiles(undefined, undefined)
      const take = yield* followed(stateDir, 10)
      yield* append(logFiles(stateDir, app)[0], "first\n")
      assert.deepStrictEqual(yield* take(1), ["first"])
    })
  )

  it.live("is followed through its removal", () =>
    Effect.gen(function* () {
      const stateDir = yield* withFiles("a\n", "older\n")
      const [newer, older] = logFiles(stateDir, app)
      const take = yield* followed(stateDir, 1)
      assert.deepStrictEqual(yield* take(1), ["a"])
      yield* append(newer, "last word\n")
      yield* Effect.promise(() => Promise.all([fs.rm(newer), fs.rm(older)]))
      assert.deepStrictEqual(yield* take(1), ["last word"])
      yield* append(newer, "another life\n")
      assert.deepStrictEqual(yield* take(1), ["another life"])
    })
  )

  it.live("is followed when what could not be written whole is taken back", () =>
    Effect.gen(function* () {
      const stateDir = yield* withFiles("a\n", undefined)
      const [newer] = logFiles(stateDir, app)
      const take = yield* followed(stateDir, 1)
      assert.deepStrictEqual(yield* take(1), ["a"])
      yield* append(newer, `whole\n${"half ".repeat(100)}`)
      assert.deepStrictEqual(yield* take(1), ["whole"])
      yield* Effect.promise(() => fs.truncate(newer, "a\nwhole\n".length))
      yield* append(newer, "b\n")
      assert.deepStrictEqual(yield* take(1), ["b"])
    })
  )

  it.live("is followed through every rotation of the host's own writer: no record twice, none lost", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const take = yield* followed(stateDir, 10)
      const read: Array<string> = []
      yield* AppLogs.use((logs) => logs.open(app, "s")).pipe(
        Effect.flatMap((log) =>
          Effect.gen(function* () {
            for (let n = 0; n < 300; n += 10) {
              const lines = Array.from({ length: 10 }, (_, more) => `line ${n + more}\n`)
              yield* log.output("stdout", Buffer.from(lines.join("")))
              read.push(...(yield* take(10)))
            }
          })
        ),
        Effect.scoped,
        Effect.provide(layerFileLogs({ stateDir, keepBytes: 1500 }))
      )
      assert.deepStrictEqual(
        read.map((record) => record.split(" ").slice(3).join(" ")),
        Array.from({ length: 300 }, (_, n) => `line ${n}`)
      )
    })
  )
})

describe("the apps that have a log", () => {
  it.live("are told by the files, of which an app has two", () =>
    Effect.gen(function* () {
      const stateDir = yield* withFiles("a\n", "b\n")
      yield* append(path.join(stateDir, "logs", "other.log.1"), "x\n")
      yield* append(path.join(stateDir, "logs", "readme.txt"), "x\n")
      const apps = LogReader.use((reader) => reader.apps)
      assert.sameMembers(
        [...(yield* Effect.provide(apps, layerFileLogReader({ stateDir })))],
        ["shop", "other"]
      )
      const none = yield* temporaryDirectory
      assert.deepStrictEqual(yield* Effect.provide(apps, layerFileLogReader({ stateDir: none })), [])
    })
  )
})
