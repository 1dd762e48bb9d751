/** Everything that can go wrong with one app lands on that app, with a sentence that names it; on real microVMs. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import {
  awaitHost,
  awaitInstance,
  awaitState,
  type Changes,
  document,
  documentOf,
  executableLayer,
  instance,
  makeHost,
  put,
  putObject,
  request,
  runDaemon,
  startHost,
  tenantLayer,
  volume
} from "./harness.ts"

const once = { restartPolicy: { maxRestarts: 0 } } satisfies Changes

layer(NodeServices.layer, { excludeTestServices: true })("a failure on a real host", (it) => {
  it.effect("of a layer fails its own instance by name, and no other", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const tenant = yield* tenantLayer(host)
      const garbage = putObject(
        host,
        "garbage",
        new TextEncoder().encode("neither squashfs nor ext4".repeat(400))
      )
      yield* runDaemon(host)
      const missing = executableLayer("c".repeat(64), "not-there")
      const wrong = executableLayer("d".repeat(64), "tenant")
      const image = { kind: "filesystem", digest: garbage, objectKey: "garbage" }
      yield* put(
        host,
        document(
          ["missing", "wrong", "image", "good"].map((app) => volume(app)),
          [
            instance("missing", missing, once),
            instance("wrong", wrong, once),
            instance("image", image, once),
            instance("good", tenant)
          ]
        )
      )
      assert.match(
        (yield* awaitState(host, "missing", "failed")).message ?? "",
        /object "not-there" is not in the artifact store/
      )
      assert.match(
        (yield* awaitState(host, "wrong", "failed")).message ?? "",
        /object "tenant" has sha-256 .* the document says dddd/
      )
      assert.match((yield* awaitState(host, "image", "failed")).message ?? "", /filesystem layer "garbage"/)
      yield* awaitState(host, "good", "running")
      assert.strictEqual((yield* request(host, "good")).status, 200)
      assert.strictEqual((yield* request(host, "missing")).status, 503)
    })
  )

  it.effect("of a volume fails the volume and its instance, with the size that was asked", () =>
    Effect.gen(function* () {
      const { host, tenant } = yield* startHost()
      yield* put(host, document([volume("app-1", { sizeBytes: 1000 })], [instance("app-1", tenant)]))
      const failed = yield* awaitState(host, "app-1", "failed")
      assert.match(failed.message ?? "", /app-1-vol.*1000/)
      const report = yield* awaitHost(
        host,
        "the volume failed",
        ({ volumes }) => volumes[0]?.state === "failed"
      )
      assert.match(report.volumes[0]?.message ?? "", /1000/)
      yield* put(host, documentOf(instance("app-1", tenant)))
      yield* awaitState(host, "app-1", "running")
    })
  )

  it.effect("to find a program that can be run is told in the guest's words", () =>
    Effect.gen(function* () {
      const { host, tenant } = yield* startHost()
      yield* put(
        host,
        documentOf(
          instance("nowhere", tenant, { ...once, program: "/app/nothing" }),
          instance("folder", tenant, { ...once, program: "/app" }),
          instance("plain", tenant, { ...once, program: "/etc/passwd" })
        )
      )
      assert.match(
        (yield* awaitState(host, "nowhere", "failed")).message ?? "",
        /there is no program at \/app\/nothing in any layer/
      )
      assert.match((yield* awaitState(host, "folder", "failed")).message ?? "", /\/app is not a file/)
      assert.match(
        (yield* awaitState(host, "plain", "failed")).message ?? "",
        /\/etc\/passwd cannot be executed by uid 65534/
      )
    })
  )

  it.effect("to become healthy is reported past the grace period, with what was asked", () =>
    Effect.gen(function* () {
      const { host, tenant } = yield* startHost()
      const check = {
        intervalMs: 500,
        timeoutMs: 2000,
        gracePeriodMs: 15_000,
        healthyThreshold: 1,
        unhealthyThreshold: 2
      }
      yield* put(
        host,
        documentOf(
          instance("silent", tenant, { args: ["--never-listen"], healthCheck: { kind: "tcp", ...check } }),
          instance("wrong", tenant, {
            args: ["--http-status", "500"],
            healthCheck: { kind: "http", path: "/healthz", ...check }
          })
        )
      )
      assert.match(
        (yield* awaitState(host, "silent", "failed")).message ?? "",
        /port 3000 never succeeded.*refused/
      )
      assert.match(
        (yield* awaitState(host, "wrong", "failed")).message ?? "",
        /GET \/healthz on port 3000 never succeeded.*500/
      )
    })
  )

  it.effect("to boot is told with the reason, and the starts are counted", () =>
    Effect.gen(function* () {
      const { host, tenant } = yield* startHost()
      // It begins as a squashfs image does, and is none: the guest cannot mount it.
      const damaged = Buffer.alloc(2 ** 20)
      damaged.write("hsqs")
      const broken = { kind: "filesystem", digest: putObject(host, "broken", damaged), objectKey: "broken" }
      const changes: Changes = { layers: [tenant, broken], restartPolicy: { maxRestarts: 1 } }
      yield* put(host, documentOf(instance("app-1", tenant, changes)))
      const failed = yield* awaitInstance(host, "app-1", "spent", ({ message }) =>
        /used up/.test(message ?? "")
      )
      assert.strictEqual(failed.state, "failed")
      assert.match(failed.message ?? "", /after 2 starts/)
    })
  )
})
