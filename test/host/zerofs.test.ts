/** A host whose volumes are on ZeroFS: the stand-in, or ZeroFS itself where `ZEROFS_BINARY` names it. */
import { readFileSync } from "node:fs"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { openExport } from "../../layers/volume/zerofs/nbd.ts"
import { relaySocket } from "../../layers/volume/zerofs/relays.ts"
import { sleepNow } from "../../scripts/local/sleep.ts"
import { VolumeId } from "../../src/document/schema.ts"
import { isReal, refuseCredentials, testZerofs } from "../support/zerofs/fixture.ts"
import {
  awaitHost,
  awaitInstance,
  awaitState,
  document,
  instance,
  makeHost,
  processesWith,
  put,
  request,
  runDaemon,
  tenantLayer,
  vmmsOf,
  volume
} from "./harness.ts"

const live = (sentence: string, body: Effect.Effect<void, unknown, never>) =>
  it.live(sentence, () => body, 280_000)

const host = Effect.gen(function* () {
  const zerofs = yield* testZerofs
  yield* zerofs.start
  const local = yield* makeHost({ zerofs: zerofs.section })
  const layer = yield* tenantLayer(local)
  const daemon = yield* runDaemon(local)
  const run = (...apps: ReadonlyArray<string>) =>
    put(
      local,
      document(
        apps.map((app) => volume(app)),
        apps.map((app) => instance(app, layer))
      )
    )
  const write = (app: string, name: string, body: string) =>
    request(local, app, `/write?path=/app/data/${name}&body=${body}`)
  const read = (app: string, name: string) => request(local, app, `/read?path=/app/data/${name}`)
  return { zerofs, local, layer, daemon, run, write, read }
})

describe("an app whose volume is on ZeroFS", () => {
  live(
    "writes and reads; waits while ZeroFS is restarted, with no error in its guest; keeps its data",
    Effect.gen(function* () {
      const { zerofs, local, run, write, read } = yield* host
      yield* run("a")
      yield* awaitState(local, "a", "running")
      assert.strictEqual((yield* write("a", "one", "first")).status, 200)

      yield* zerofs.stop
      const waiting = yield* Effect.forkChild(write("a", "two", "second"), { startImmediately: true })
      yield* awaitInstance(local, "a", "runs on", (found) => found.state === "running")
      yield* zerofs.start
      assert.strictEqual((yield* Fiber.join(waiting)).status, 200)
      assert.strictEqual((yield* read("a", "one")).body.trim(), "first")
      assert.strictEqual((yield* read("a", "two")).body.trim(), "second")
      assert.notMatch(readFileSync(local.log, "utf8"), /I\/O error, dev|EXT4-fs error|Remounting/u)
      assert.strictEqual(vmmsOf(local).length, 1)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  live(
    "has a relay that leads to its own volume only, that outlives the daemon and is replaced when it dies",
    Effect.gen(function* () {
      const { local, daemon, run, write, read } = yield* host
      yield* run("a", "b")
      yield* awaitState(local, "a", "running")
      yield* awaitState(local, "b", "running")
      const socketA = relaySocket(local.runtime, VolumeId.make("a-vol"))
      // While its VMM is connected nobody else is let in at all.
      yield* Effect.flip(Effect.scoped(openExport(socketA, "a-vol")))

      const relays = () =>
        processesWith(`${local.runtime}/nbd/`).filter((pid) => !vmmsOf(local).includes(pid))
      assert.strictEqual(relays().length, 2)
      const before = relays()
      const killedAt = Date.now()
      yield* daemon.kill
      assert.deepStrictEqual(relays(), before)
      yield* runDaemon(local)
      yield* awaitHost(
        local,
        "the next daemon's report",
        ({ reportedAt, state }) => state === "ready" && Date.parse(reportedAt) > killedAt
      )
      assert.strictEqual((yield* write("a", "one", "first")).status, 200)

      for (const pid of before) process.kill(pid, "SIGKILL")
      assert.strictEqual((yield* write("a", "two", "second")).status, 200)
      assert.strictEqual((yield* read("a", "two")).body.trim(), "second")
      assert.strictEqual((yield* write("b", "one", "other")).status, 200)
      assert.strictEqual(relays().length, 2)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  live(
    "sleeps and wakes with its memory and its data, also when its relay has ended meanwhile",
    Effect.gen(function* () {
      const { local, layer, write, read } = yield* host
      const sleepy = instance("a", layer, {
        desiredState: "on-request",
        activation: { sleepWhen: { kind: "never" } }
      })
      yield* put(local, document([volume("a")], [sleepy]))
      yield* awaitState(local, "a", "running")
      const remember = Effect.map(request(local, "a", "/remember"), ({ body }) => body.trim())
      assert.strictEqual(yield* remember, "1")
      assert.strictEqual((yield* write("a", "one", "first")).status, 200)
      yield* sleepNow(local, "a")
      assert.deepStrictEqual(vmmsOf(local), [])
      for (const pid of processesWith(`${local.runtime}/nbd/`)) process.kill(pid, "SIGKILL")
      assert.strictEqual(yield* remember, "2")
      assert.strictEqual((yield* read("a", "one")).body.trim(), "first")
      assert.strictEqual((yield* write("a", "two", "second")).status, 200)
      assert.strictEqual((yield* read("a", "two")).body.trim(), "second")
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  if (!isReal) {
    live(
      "waits while ZeroFS gives errors, and goes on by itself",
      Effect.gen(function* () {
        const { zerofs, local, run, write, read } = yield* host
        yield* run("a")
        yield* awaitState(local, "a", "running")
        yield* refuseCredentials(zerofs, true)
        const waiting = yield* Effect.forkChild(write("a", "one", "first"), { startImmediately: true })
        while (!readFileSync(local.log, "utf8").includes("its guest waits until it can be used"))
          yield* Effect.sleep(100)
        yield* refuseCredentials(zerofs, false)
        assert.strictEqual((yield* Fiber.join(waiting)).status, 200)
        assert.strictEqual((yield* read("a", "one")).body.trim(), "first")
      }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
    )
  }
})
