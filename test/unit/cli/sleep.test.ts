import { mkdir } from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { layerControlSocket } from "../../../layers/control/socket.ts"
import { rawDocument, rawInstance, rawVolume } from "../reconcile/documents.ts"
import { makeHost as makeDaemon } from "../reconcile/harness.ts"
import { makeHost } from "./harness.ts"

/** The command line of a host whose daemon runs, in memory, with the app `hello`, which is on-request. */
const withHello = Effect.gen(function* () {
  const host = yield* makeHost()
  const runtimeDir = path.join(host.folder, "run")
  yield* Effect.promise(() => mkdir(runtimeDir))
  const daemon = yield* makeDaemon()
  yield* daemon.start().pipe(Effect.provide(layerControlSocket({ runtimeDir })))
  const hello = rawInstance("hello", { desiredState: "on-request" })
  yield* daemon.put(rawDocument({ volumes: [rawVolume("hello")], instances: [hello] }))
  yield* daemon.untilState("hello", "running")
  return { host, daemon }
})

describe("nibrunnerd sleep", () => {
  it.effect("returns when the app sleeps", () =>
    Effect.gen(function* () {
      const { host, daemon } = yield* withHello
      // The daemon of this test logs to the same stdout.
      const { code, err } = yield* host.run("sleep", "hello")
      assert.deepStrictEqual([code, err], [0, ""])
      assert.deepStrictEqual(daemon.machine.machines, [])
      yield* daemon.stop()
    })
  )

  it.effect("names the app that may have been meant when the host knows none of that name", () =>
    Effect.gen(function* () {
      const { host, daemon } = yield* withHello
      for (const name of ["helo", "HELLO", "hell o", "%zz/hello"]) {
        const { code, err, out } = yield* host.run("sleep", name)
        assert.deepStrictEqual([code, out], [1, ""])
        assert.strictEqual(
          err,
          `nibrunnerd: this host knows no app ${JSON.stringify(name)}. ${name.startsWith("%") ? "nibrunnerd status shows the 1 that it knows" : "Did you mean hello?"}`
        )
      }
      assert.lengthOf(daemon.machine.machines, 1)
      yield* daemon.stop()
    })
  )

  it.effect("says that no daemon runs when none does", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const { code, err } = yield* host.run("sleep", "hello")
      assert.strictEqual(code, 1)
      assert.strictEqual(
        err,
        `nibrunnerd: no daemon of this host runs (${path.join(host.folder, "run/control.sock")})`
      )
    })
  )
})
