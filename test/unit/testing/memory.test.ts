import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import {
  breakWatch,
  layerDocumentSourceMemory,
  makeDocumentWorld,
  putDocument,
  readAgain,
  removeDocument
} from "../../../layers/testing/DocumentSource.ts"
import {
  awaitNextReport,
  awaitReport,
  layerReporterMemory,
  makeReporterWorld
} from "../../../layers/testing/Reporter.ts"
import { Script } from "../../../layers/testing/Script.ts"
import { DocumentSource, DocumentSourceError } from "../../../src/services/DocumentSource.ts"
import { Reporter } from "../../../src/services/Reporter.ts"
import { emptyReport } from "../../support/report.ts"

describe("what a test lays in the way of an in-memory layer", () => {
  const make = () => {
    const script = new Script<{ boot: string; stop: string }>()
    const done: Array<string> = []
    const call = (operation: "boot" | "stop", subject: string) =>
      script.around(
        operation,
        subject,
        Effect.sync(() => done.push(`${operation} ${subject}`))
      )
    return { script, done, call }
  }

  it.effect("fails the operation and the subject that it names, as often as it says", () =>
    Effect.gen(function* () {
      const { script, done, call } = make()
      script.fail("boot", (subject) => `no ${subject}`, { subject: "a", times: 2 })
      assert.strictEqual(yield* Effect.flip(call("boot", "a")), "no a")
      yield* call("boot", "b")
      yield* call("stop", "a")
      assert.strictEqual(yield* Effect.flip(call("boot", "a")), "no a")
      yield* call("boot", "a")
      assert.deepStrictEqual(done, ["boot b", "stop a", "boot a"])
      assert.strictEqual(script.count("boot"), 4)
      assert.strictEqual(script.count("boot", "a"), 3)
    })
  )

  it.effect("fails after the deed where it says so, until it is cleared away", () =>
    Effect.gen(function* () {
      const { script, done, call } = make()
      script.fail("boot", "late", { at: "after" })
      assert.strictEqual(yield* Effect.flip(call("boot", "a")), "late")
      script.clear()
      yield* call("boot", "b")
      assert.deepStrictEqual(done, ["boot a", "boot b"])
    })
  )

  it.effect("stalls before or after the deed, tells when a call has got there, and lets it go", () =>
    Effect.gen(function* () {
      const { script, done, call } = make()
      const before = script.stall("boot", { subject: "a" })
      const after = script.stall("boot", { subject: "b", at: "after" })
      const fibers = yield* Effect.forEach(["a", "b"], (subject) => Effect.forkChild(call("boot", subject)))
      yield* before.reached
      yield* after.reached
      assert.deepStrictEqual(done, ["boot b"])
      yield* before.release
      yield* after.release
      yield* Effect.forEach(fibers, Fiber.join)
      assert.deepStrictEqual(done, ["boot b", "boot a"])
    })
  )

  it.effect("is passed by a call that is interrupted while it stalls", () =>
    Effect.gen(function* () {
      const { script, done, call } = make()
      const stall = script.stall("boot")
      const fiber = yield* Effect.forkChild(call("boot", "a"))
      yield* stall.reached
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(done, [])
    })
  )
})

describe("the document in memory", () => {
  const readings = (world: ReturnType<typeof makeDocumentWorld>, count: number) =>
    DocumentSource.use((source) => Stream.runCollect(Stream.take(source.readings, count))).pipe(
      Effect.map((found) =>
        found.map((reading) =>
          reading.kind === "read" ? Buffer.from(reading.bytes).toString() : reading.kind
        )
      ),
      Effect.provide(layerDocumentSourceMemory(world))
    )

  it.effect("is read as it lies there, then after each change, also by the next daemon", () =>
    Effect.gen(function* () {
      const world = makeDocumentWorld()
      const first = yield* Effect.forkChild(readings(world, 5), { startImmediately: true })
      yield* putDocument(world, { a: 1 })
      yield* putDocument(world, "text")
      yield* readAgain(world)
      yield* removeDocument(world)
      assert.deepStrictEqual(yield* Fiber.join(first), ["absent", `{"a":1}`, "text", "text", "absent"])
      yield* putDocument(world, "kept")
      assert.deepStrictEqual(yield* readings(world, 1), ["kept"])
      assert.strictEqual(world.watchers.size, 0)
    })
  )

  it.effect("can end every watch with an error", () =>
    Effect.gen(function* () {
      const world = makeDocumentWorld()
      const fiber = yield* Effect.forkChild(Effect.flip(readings(world, 5)), { startImmediately: true })
      yield* breakWatch(world, new DocumentSourceError({ path: "/d", reason: "gone" }))
      assert.strictEqual((yield* Fiber.join(fiber)).message, "the document /d cannot be watched: gone")
    })
  )
})

describe("the reporter in memory", () => {
  it.effect("keeps every report and wakes who waits for one", () =>
    Effect.gen(function* () {
      const world = makeReporterWorld()
      const second = yield* Effect.forkChild(
        awaitReport(world, ({ message }) => message === "second"),
        { startImmediately: true }
      )
      yield* Effect.gen(function* () {
        const reporter = yield* Reporter
        yield* reporter.write(JSON.stringify(emptyReport("first")))
        yield* reporter.write(JSON.stringify(emptyReport("second")))
      }).pipe(Effect.provide(layerReporterMemory(world)))
      assert.strictEqual((yield* Fiber.join(second)).message, "second")
      assert.strictEqual((yield* awaitReport(world, () => true)).message, "second")
      assert.deepStrictEqual(
        world.reports.map(({ message }) => message),
        ["first", "second"]
      )
      const next = yield* Effect.forkChild(awaitNextReport(world), { startImmediately: true })
      yield* Reporter.use((reporter) => reporter.write(JSON.stringify(emptyReport("third")))).pipe(
        Effect.provide(layerReporterMemory(world))
      )
      assert.strictEqual((yield* Fiber.join(next)).message, "third")
      assert.strictEqual(world.waiters.size, 0)
    })
  )
})
