import { execFileSync } from "node:child_process"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Queue, Stream } from "effect"
import { TestClock } from "effect/testing"
import { layerWatchedDocument } from "../../../layers/document/watch.ts"
import { MAX_DOCUMENT_BYTES } from "../../../src/document/text.ts"
import { type DocumentReading, DocumentSource } from "../../../src/services/DocumentSource.ts"
import { recordedLog } from "../../support/log.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

/** Longer than a slow machine needs, shorter than the 30 s after which the file is read anyway. */
const LIMIT = "20 seconds"

const textOf = (reading: DocumentReading): string =>
  reading.kind === "read" ? Buffer.from(reading.bytes).toString() : reading.kind

const watched = (file: string) =>
  Effect.gen(function* () {
    const readings = yield* Queue.unbounded<DocumentReading>()
    const source = yield* DocumentSource
    yield* source.readings.pipe(
      Stream.runForEach((reading) => Queue.offer(readings, reading)),
      Effect.orDie,
      Effect.forkScoped({ startImmediately: true })
    )
    /** The next readings, up to the one that is this text. */
    const until = (text: string): Effect.Effect<ReadonlyArray<string>, unknown> =>
      Effect.gen(function* () {
        const seen: Array<string> = []
        while (seen.at(-1) !== text) seen.push(textOf(yield* Queue.take(readings)))
        return seen
      }).pipe(Effect.timeout(LIMIT))
    return { readings, until }
  }).pipe(Effect.provide(layerWatchedDocument({ path: file })))

const write = (file: string, text: string) => Effect.promise(() => fs.writeFile(file, text))
/** As a control plane does it: another name, then a rename. */
const replace = (file: string, text: string) =>
  Effect.promise(async () => {
    await fs.writeFile(`${file}.new`, text)
    await fs.rename(`${file}.new`, file)
  })

const newPath = Effect.map(temporaryDirectory, (directory) => path.join(directory, "desired.json"))

describe("the document on the disk", () => {
  it.live("is read at once, with its digest", () =>
    Effect.gen(function* () {
      const file = yield* newPath
      yield* write(file, "abc")
      const { readings } = yield* watched(file)
      const reading = yield* Queue.take(readings)
      assert.deepStrictEqual(
        reading.kind === "read" ? reading.digest : undefined,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
      )
    })
  )

  it.live("is absent until it is there, and when it is gone", () =>
    Effect.gen(function* () {
      const file = yield* newPath
      const { until } = yield* watched(file)
      yield* until("absent")
      yield* replace(file, "first")
      yield* until("first")
      yield* Effect.promise(() => fs.rm(file))
      yield* until("absent")
    })
  )

  it.live("is read again when it is replaced by a rename, and when it is written in place", () =>
    Effect.gen(function* () {
      const file = yield* newPath
      yield* write(file, "0")
      const { until } = yield* watched(file)
      yield* until("0")
      yield* replace(file, "1")
      yield* until("1")
      yield* write(file, "2")
      yield* until("2")
      yield* replace(file, "3")
      yield* until("3")
    })
  )

  it.live("is read in its last state however quickly it was replaced", () =>
    Effect.gen(function* () {
      const file = yield* newPath
      yield* write(file, "0")
      const { until } = yield* watched(file)
      yield* until("0")
      for (let round = 0; round < 20; round += 1) {
        for (const step of [1, 2, 3]) yield* replace(file, `${round}.${step}`)
        yield* until(`${round}.3`)
      }
    })
  )

  it.live("is not read because of other files in its directory", () =>
    Effect.gen(function* () {
      const file = yield* newPath
      yield* write(file, "0")
      const { until } = yield* watched(file)
      yield* until("0")
      for (let n = 0; n < 50; n += 1) {
        yield* write(path.join(path.dirname(file), `reported.json.${n}`), "x")
        yield* write(path.join(path.dirname(file), "desired.json2"), "x")
      }
      // Through a name that is not the document's either, so that the rename alone is its own event.
      yield* Effect.promise(async () => {
        await fs.writeFile(path.join(path.dirname(file), "other"), "1")
        await fs.rename(path.join(path.dirname(file), "other"), file)
      })
      assert.deepStrictEqual(yield* until("1"), ["1"])
    })
  )

  it.live("is found in a directory that is made for it", () =>
    Effect.gen(function* () {
      const file = path.join(yield* temporaryDirectory, "a", "b", "desired.json")
      const { until } = yield* watched(file)
      yield* until("absent")
      yield* replace(file, "1")
      yield* until("1")
    })
  )

  it.live("is found again when its directory was removed or moved away and another has its name", () => {
    const { layer, until: untilSaid } = recordedLog()
    return Effect.gen(function* () {
      const directory = path.join(yield* temporaryDirectory, "etc")
      const file = path.join(directory, "desired.json")
      const { until } = yield* watched(file)
      yield* until("absent")
      yield* Effect.promise(() => fs.rm(directory, { recursive: true }))
      yield* untilSaid(
        `Warn the document ${file} is not watched at the moment: ${directory} does not exist`
      ).pipe(Effect.timeout(LIMIT))
      yield* Effect.promise(() => fs.mkdir(directory))
      yield* replace(file, "1")
      yield* until("1")
      yield* untilSaid(`Info the document ${file} is watched again`).pipe(Effect.timeout(LIMIT))
      yield* Effect.promise(async () => {
        await fs.rename(directory, `${directory}.old`)
        await fs.mkdir(directory)
      })
      yield* replace(file, "2")
      yield* until("2")
      yield* replace(file, "3")
      yield* until("3")
    }).pipe(Effect.provide(layer))
  })

  it.live("is absent as soon as its directory is moved away", () =>
    Effect.gen(function* () {
      const directory = path.join(yield* temporaryDirectory, "etc")
      const file = path.join(directory, "desired.json")
      yield* Effect.promise(() => fs.mkdir(directory))
      yield* write(file, "1")
      const { until } = yield* watched(file)
      yield* until("1")
      yield* Effect.promise(() => fs.rename(directory, `${directory}.old`))
      yield* until("absent")
      yield* Effect.promise(() => fs.rename(`${directory}.old`, directory))
      yield* until("1")
    })
  )

  it.effect("is read every 30 s, though nothing happened", () =>
    Effect.gen(function* () {
      const file = yield* newPath
      yield* write(file, "same")
      const { readings } = yield* watched(file)
      /** Reading is real: the clock goes on in small steps until it is done. Gives how far it went, in ms. */
      const untilRead = Effect.gen(function* () {
        const before = yield* Clock.currentTimeMillis
        while ((yield* Queue.size(readings)) === 0) {
          yield* TestClock.adjust(1)
          yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
        }
        assert.strictEqual(textOf(yield* Queue.take(readings)), "same")
        return (yield* Clock.currentTimeMillis) - before
      })
      yield* untilRead
      for (let round = 0; round < 3; round += 1) {
        yield* TestClock.adjust("30 seconds")
        assert.isBelow(yield* untilRead, 29_000)
      }
    })
  )

  it.live("is taken up to the size that is decoded, and refused with its size when it is larger", () =>
    Effect.gen(function* () {
      const file = yield* newPath
      yield* write(file, "")
      yield* Effect.promise(() => fs.truncate(file, MAX_DOCUMENT_BYTES))
      const { readings } = yield* watched(file)
      const largest = yield* Queue.take(readings)
      assert.strictEqual(largest.kind === "read" ? largest.bytes.length : -1, MAX_DOCUMENT_BYTES)
      yield* Effect.promise(() => fs.truncate(file, MAX_DOCUMENT_BYTES + 1))
      const reading = yield* Queue.take(readings)
      assert.deepStrictEqual(reading, {
        kind: "unreadable",
        reason: `${file} has 67108865 bytes; at most 67108864 (64 MiB) are read`
      })
    })
  )

  it.live("is unreadable, and never waited for, where it is no file", () =>
    Effect.gen(function* () {
      const file = yield* newPath
      execFileSync("mkfifo", [file])
      const pipe = yield* Queue.take((yield* watched(file)).readings)
      assert.deepStrictEqual(pipe, { kind: "unreadable", reason: `${file} is not a regular file` })
      yield* Effect.promise(async () => {
        await fs.rm(file)
        await fs.mkdir(file)
      })
      const directory = yield* Queue.take((yield* watched(file)).readings)
      assert.deepStrictEqual(directory, { kind: "unreadable", reason: `${file} is not a regular file` })
    })
  )

  it.live(
    "that can never be watched, since its directory is a file, ends the readings with that reason",
    () =>
      Effect.gen(function* () {
        const blocked = path.join(yield* temporaryDirectory, "file")
        yield* write(blocked, "")
        const file = path.join(blocked, "desired.json")
        const error = yield* DocumentSource.use((source) => Stream.runDrain(source.readings)).pipe(
          Effect.provide(layerWatchedDocument({ path: file })),
          Effect.flip
        )
        assert.strictEqual(error.message, `the document ${file} cannot be watched: ${blocked} exists already`)
      })
  )
})
