/** A host that is taken down in order, and goes on in another place with what was copied. */
import { cpSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import {
  awaitState,
  bodyOf,
  documentOf,
  instance,
  makeHost,
  put,
  request,
  runDaemon,
  tenantLayer,
  vmmsOf
} from "./harness.ts"

/** Every instance stopped, as docs/install.md does it. */
const stopped = (desired: ReturnType<typeof documentOf>) => ({
  ...desired,
  instances: desired.instances.map((one) => ({
    ...(one as Record<string, unknown>),
    desiredState: "stopped",
    activation: undefined
  }))
})

layer(NodeServices.layer, { excludeTestServices: true })("a host that moves", (it) => {
  it.effect("stops its apps by the document, and runs them elsewhere with what they have written", () =>
    Effect.gen(function* () {
      const from = yield* makeHost()
      const tenant = yield* tenantLayer(from)
      const sleepy = {
        desiredState: "on-request",
        activation: { sleepWhen: { kind: "traffic-idle", timeoutMs: 60_000 } }
      }
      const desired = documentOf(instance("app-1", tenant), instance("app-2", tenant, sleepy))
      const daemon = yield* runDaemon(from)
      yield* put(from, desired)
      yield* awaitState(from, "app-1", "running")
      yield* awaitState(from, "app-2", "running")
      assert.strictEqual((yield* request(from, "app-1", "/write?path=/app/data/kept&body=yes")).status, 200)

      yield* put(from, stopped(desired))
      yield* awaitState(from, "app-1", "stopped")
      yield* awaitState(from, "app-2", "stopped")
      assert.deepStrictEqual(vmmsOf(from), [])
      yield* daemon.stop

      const to = yield* makeHost()
      for (const part of ["state", "artifacts"])
        cpSync(join(from.folder, part), join(to.folder, part), { recursive: true })
      writeFileSync(to.desired, JSON.stringify(desired))
      yield* runDaemon(to)
      yield* awaitState(to, "app-1", "running")
      assert.strictEqual(yield* bodyOf(to, "/read?path=/app/data/kept"), "200 yes")
      yield* awaitState(to, "app-2", "idle")
      assert.strictEqual((yield* request(to, "app-2")).status, 200)
    })
  )
})
