/** The command line beside a real daemon and its microVM, and after both. */
import { spawnSync } from "node:child_process"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { LocalHost } from "../../scripts/local/host.ts"
import {
  awaitState,
  document,
  documentOf,
  instance,
  makeHost,
  put,
  runDaemon,
  tenantLayer,
  vmmsOf,
  volume
} from "./harness.ts"

const program = join(import.meta.dirname, "../../bin/nibrunnerd.ts")

const run = (host: LocalHost, ...args: ReadonlyArray<string>) => {
  const { status, stderr, stdout } = spawnSync(process.execPath, [program, ...args], {
    encoding: "utf8",
    env: { ...process.env, NIBRUNNER_CONFIG: host.config }
  })
  assert.deepStrictEqual([status, stderr], [0, ""])
  return stdout
}

const plan = (host: LocalHost, desired: unknown) => {
  const file = join(host.folder, "next.json")
  writeFileSync(file, JSON.stringify(desired))
  return JSON.parse(run(host, "plan", "--json", file)).apps.map(
    (app: { readonly appId: string; readonly actions: ReadonlyArray<{ readonly kind: string }> }) => [
      app.appId,
      app.actions.map(({ kind }) => kind)
    ]
  )
}

layer(NodeServices.layer, { excludeTestServices: true })("the command line on a real host", (it) => {
  it.effect("foresees what the daemon does, shows its report, and prints what the app has said", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const tenant = yield* tenantLayer(host)
      const first = documentOf(instance("app-1", tenant))
      const next = documentOf(instance("app-1", tenant, { deploymentId: "dep-2" }))
      assert.deepStrictEqual(plan(host, first), [["app-1", ["create-volume", "boot"]]])

      const daemon = yield* runDaemon(host)
      yield* put(host, first)
      yield* awaitState(host, "app-1", "running")
      assert.deepStrictEqual(plan(host, first), [["app-1", []]])
      assert.deepStrictEqual(plan(host, next), [["app-1", ["replace"]]])
      assert.deepStrictEqual(plan(host, document([volume("app-1", { desiredState: "absent" })], [])), [
        ["app-1", ["stop", "delete-volume", "forget"]]
      ])
      assert.match(run(host, "status"), /^app-1 +running .* app-1\.example\.com$/mu)
      assert.notStrictEqual(run(host, "logs", "app-1"), "")

      yield* daemon.stop
      assert.deepStrictEqual(plan(host, first), [["app-1", []]])
      const [vmm] = vmmsOf(host)
      assert.isDefined(vmm)
      process.kill(vmm ?? 0, "SIGKILL")
      // Nobody waits for it: it is gone once the kernel has taken it down.
      while (vmmsOf(host).length > 0) yield* Effect.sleep(50)
      assert.deepStrictEqual(plan(host, first), [["app-1", ["restart"]]])
      assert.deepStrictEqual(plan(host, next), [["app-1", ["boot"]]])
    })
  )
})
