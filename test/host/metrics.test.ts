/** The metrics page of a real daemon, with an app on a real microVM. */
import { spawnSync } from "node:child_process"
import { appendFileSync } from "node:fs"
import * as http from "node:http"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect, Schedule } from "effect"
import { freePort, type LocalHost } from "../../scripts/local/host.ts"
import { readReport } from "../../scripts/local/report.ts"
import { families } from "../../src/metrics/families.ts"
import { InstanceState } from "../../src/report/schema.ts"
import { readMetrics, valueOf } from "../support/prometheus.ts"
import {
  awaitInstance,
  awaitState,
  document,
  documentOf,
  instance,
  makeHost,
  put,
  request,
  runDaemon,
  tenantLayer,
  vmmsOf,
  volume
} from "./harness.ts"

const get = (port: number): Effect.Effect<string, Error> =>
  Effect.callback<string, Error>((resume) => {
    const sent = http.get({ host: "127.0.0.1", port, path: "/metrics", agent: false }, (response) => {
      let body = ""
      response.setEncoding("utf8")
      response.on("data", (piece: string) => {
        body += piece
      })
      response.on("end", () =>
        resume(response.statusCode === 200 ? Effect.succeed(body) : Effect.fail(new Error(body)))
      )
      response.on("error", (error) => resume(Effect.fail(error)))
    })
    sent.on("error", (error) => resume(Effect.fail(error)))
    return Effect.sync(() => sent.destroy())
  })

/** The first page that the test can use: pages are up to a second old. */
const pageThat = (port: number, fits: (page: ReturnType<typeof readMetrics>) => boolean) =>
  get(port).pipe(
    Effect.flatMap((text) => {
      const page = readMetrics(text)
      return fits(page) ? Effect.succeed({ text, page }) : Effect.fail(new Error(`not yet:\n${text}`))
    }),
    Effect.retry(Schedule.spaced("200 millis").pipe(Schedule.upTo({ duration: "1 minute" })))
  )

const promtool = (input: string) => {
  const { status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], { input, encoding: "utf8" })
  return { status, said: stdout + stderr }
}

const serveMetrics = (host: LocalHost) =>
  Effect.map(freePort(0), (port) => {
    appendFileSync(host.config, `\n[metrics]\nlisten_address = "127.0.0.1"\nport = ${port}\n`)
    return port
  })

layer(NodeServices.layer, { excludeTestServices: true })("the metrics page of a real host", (it) => {
  it.effect(
    "tells of an app, its requests and its end what the report tells, in a form that promtool passes",
    () =>
      Effect.gen(function* () {
        const host = yield* makeHost()
        const port = yield* serveMetrics(host)
        const tenant = yield* tenantLayer(host)
        const daemon = yield* runDaemon(host)
        const empty = yield* pageThat(port, () => true)
        assert.deepStrictEqual(promtool(empty.text), { status: 0, said: "" })
        assert.deepStrictEqual(
          [...empty.page.keys()],
          families.map(({ name }) => name)
        )

        yield* put(host, documentOf(instance("app-1", tenant)))
        yield* awaitState(host, "app-1", "running")
        for (const _ of [1, 2, 3]) assert.strictEqual((yield* request(host, "app-1")).status, 200)
        assert.strictEqual((yield* request(host, "app-1", "/no-such-path")).status, 404)
        assert.strictEqual((yield* request(host, "nobody")).status, 404)

        const app = "app-1"
        const answers = (class_: string) => ({ app, class: class_ })
        const { text, page } = yield* pageThat(
          port,
          (seen) => valueOf(seen, "nibrunner_proxy_requests_total", { outcome: "no_such_host" }) === 1
        )
        assert.deepStrictEqual(promtool(text), { status: 0, said: "" })
        assert.strictEqual(valueOf(page, "nibrunner_app_requests_total", answers("2xx")), 3)
        assert.strictEqual(valueOf(page, "nibrunner_app_requests_total", answers("4xx")), 1)
        assert.strictEqual(valueOf(page, "nibrunner_proxy_requests_total", { outcome: "served" }), 4)
        assert.strictEqual(valueOf(page, "nibrunner_app_requests_open", { app }), 0)

        const report = yield* readReport(host)
        for (const state of InstanceState.literals) {
          assert.strictEqual(
            valueOf(page, "nibrunner_app_state", { app, state }),
            report.instances[0]?.state === state ? 1 : 0
          )
        }
        assert.strictEqual(valueOf(page, "nibrunner_host_converged"), 1)
        assert.strictEqual(valueOf(page, "nibrunner_slots", { of: "used" }), 1)
        assert.strictEqual(
          valueOf(page, "nibrunner_host_capacity", { resource: "memory" }),
          report.capacity.memoryMib
        )
        assert.strictEqual(
          valueOf(page, "nibrunner_volume_size_bytes", { volume: "app-1-vol", app }),
          report.volumes[0]?.sizeBytes
        )
        const took = (phase: string) =>
          valueOf(page, "nibrunner_app_last_converge_seconds", { app, phase }) ?? 0
        const phases = ["layers", "volume", "boot", "ready"].map(took)
        assert.isTrue(
          phases.every((seconds) => seconds > 0),
          JSON.stringify(phases)
        )
        assert.isAtMost(
          phases.reduce((sum, seconds) => sum + seconds, 0),
          took("total") + 0.1
        )
        for (const operation of ["layer_fetch", "volume_provision", "volume_attach"]) {
          const labels = { operation, outcome: "ok" }
          assert.strictEqual(valueOf(page, "nibrunner_storage_operation_seconds_count", labels), 1, operation)
        }
        assert.isAbove(valueOf(page, "nibrunner_layer_fetch_bytes_total") ?? 0, 1000)
        assert.strictEqual(valueOf(page, "nibrunner_layers_cached_total"), 0)

        for (const pid of vmmsOf(host)) process.kill(pid, "SIGKILL")
        yield* awaitInstance(host, app, "has ended", ({ state }) => state !== "running")
        yield* awaitState(host, app, "running")
        const again = yield* pageThat(
          port,
          (seen) => valueOf(seen, "nibrunner_app_state", { app, state: "running" }) === 1
        )
        assert.strictEqual(valueOf(again.page, "nibrunner_app_failures_total", { app, reason: "exited" }), 1)
        assert.strictEqual(valueOf(again.page, "nibrunner_layers_cached_total"), 1)
        assert.strictEqual(
          valueOf(again.page, "nibrunner_converge_outcomes_total", {
            desired_state: "running",
            cause: "restart",
            outcome: "converged"
          }),
          1
        )

        yield* daemon.stop
        yield* runDaemon(host)
        const adopted = yield* pageThat(
          port,
          (seen) => valueOf(seen, "nibrunner_app_state", { app, state: "running" }) === 1
        )
        assert.strictEqual(valueOf(adopted.page, "nibrunner_app_converged", { app }), 1)
        assert.deepStrictEqual(adopted.page.get("nibrunner_app_failures_total")?.samples, [])
        assert.isAbove(
          valueOf(adopted.page, "nibrunner_process_start_time_seconds") ?? 0,
          valueOf(again.page, "nibrunner_process_start_time_seconds") ?? 0
        )

        yield* put(host, document([volume(app, { desiredState: "absent" })], []))
        const without = yield* pageThat(
          port,
          (seen) => valueOf(seen, "nibrunner_slots", { of: "used" }) === 0
        )
        assert.deepStrictEqual(without.page.get("nibrunner_app_state")?.samples, [])
      })
  )
})
