/** What whoever writes the document and reads the report relies on, on real microVMs. */
import { existsSync, readFileSync, writeFileSync } from "node:fs"
import * as http from "node:http"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { readReport } from "../../scripts/local/report.ts"
import {
  awaitHost,
  awaitInstance,
  awaitState,
  document,
  documentOf,
  instance,
  makeHost,
  put,
  request,
  runDaemon,
  startHost,
  tenantLayer,
  vmmsOf,
  volume
} from "./harness.ts"

/** One request to a port of the host's own loopback, as if it came for the hostname. */
const requestPort = (port: number, hostname: string): Effect.Effect<number, Error> =>
  Effect.callback((resume) => {
    const sent = http.get(
      { host: "127.0.0.1", port, headers: { host: hostname }, agent: false },
      (response) => {
        response.resume()
        resume(Effect.succeed(response.statusCode ?? 0))
      }
    )
    sent.on("error", (error) => resume(Effect.fail(error)))
  })

layer(NodeServices.layer, { excludeTestServices: true })("the contract on real microVMs", (it) => {
  it.effect(
    "a document that is refused is explained and leaves the app as it was, until a good one comes",
    () =>
      Effect.gen(function* () {
        const { host, tenant } = yield* startHost()
        yield* put(host, documentOf(instance("app-1", tenant)))
        yield* awaitState(host, "app-1", "running")
        assert.strictEqual((yield* request(host, "app-1", "/remember")).body.trim(), "1")
        const { acceptedDigest } = yield* readReport(host)

        const next = instance("app-1", tenant, { deploymentId: "dep-2" })
        const sleepWhen = { kind: "traffic-idle", timeoutMs: 60_000 }
        yield* put(host, document([volume("app-1")], [{ ...next, activation: { sleepWhen } }]))
        const refused = yield* awaitHost(host, "the refusal", ({ message }) => message !== null)
        assert.match(refused.message ?? "", /desired\.json is refused: .*on-request/u)
        for (let look = 0; look < 20; look++) {
          yield* Effect.sleep("250 millis")
          assert.strictEqual((yield* readReport(host)).acceptedDigest, acceptedDigest)
          assert.strictEqual((yield* request(host, "app-1")).status, 200)
        }
        assert.strictEqual((yield* request(host, "app-1", "/remember")).body.trim(), "2")

        yield* put(host, document([volume("app-1")], [next]))
        yield* awaitHost(host, "the refusal is cleared", ({ message }) => message === null)
        yield* awaitInstance(
          host,
          "app-1",
          "dep-2 runs",
          ({ deploymentId, state }) => deploymentId === "dep-2" && state === "running"
        )
      })
  )

  it.effect(
    "a report is true of the machine: its port answers for the hostname, its layer is what runs",
    () =>
      Effect.gen(function* () {
        const { host, tenant } = yield* startHost()
        yield* put(host, documentOf(instance("app-1", tenant)))
        const report = yield* awaitState(host, "app-1", "running")
        assert.strictEqual(yield* requestPort(report.hostPort ?? 0, "app-1.example.com"), 200)
        assert.strictEqual(report.guestIpv4, "10.201.0.2")
        assert.deepStrictEqual(report.layerDigests, [tenant.digest])
        assert.strictEqual(report.deploymentId, "dep-1")
        assert.isAtLeast(Date.parse(report.convergedAt ?? ""), Date.parse(report.startedAt ?? ""))
        assert.isAtMost(Date.parse(report.convergedAt ?? ""), Date.now())
      })
  )

  it.effect("an app that is removed answers to its last moment, and then nothing of it is left", () =>
    Effect.gen(function* () {
      const { host, tenant } = yield* startHost({ maxApps: 1 })
      yield* put(host, documentOf(instance("app-1", tenant)))
      const { hostPort } = yield* awaitState(host, "app-1", "running")
      yield* request(host, "app-1", "/write?path=note&body=of-the-first")
      yield* request(host, "app-1", "/log?lines=3")

      const statuses: Array<number> = []
      const asking = yield* Effect.forkChild(
        request(host, "app-1").pipe(
          Effect.timeout("20 seconds"),
          Effect.tap(({ status }) => Effect.sync(() => statuses.push(status))),
          Effect.forever
        )
      )
      yield* put(host, document([volume("app-1", { desiredState: "absent" })], []))
      yield* awaitHost(
        host,
        "the volume is deleted",
        ({ instances, volumes }) => instances.length === 0 && volumes[0]?.state === "deleted"
      )
      const asked = asking.pollUnsafe()
      assert.isUndefined(asked, String(asked))
      yield* Fiber.interrupt(asking)
      assert.includeMembers([200, 404, 502, 503], statuses)
      assert.strictEqual((yield* request(host, "app-1")).status, 404)
      yield* put(host, document([], []))
      yield* awaitHost(host, "nothing is named", ({ volumes }) => volumes.length === 0)
      assert.deepStrictEqual(vmmsOf(host), [])
      for (const left of ["state/volumes/app-1-vol.img", "state/logs/app-1.log", "state/logs/app-1.log.1"])
        assert.isFalse(existsSync(join(host.folder, left)), left)

      // The one slot that there is: the next app has its port, and nothing else of the last one's.
      yield* put(host, documentOf(instance("app-2", tenant)))
      const second = yield* awaitState(host, "app-2", "running")
      assert.strictEqual(second.hostPort, hostPort)
      assert.notStrictEqual((yield* request(host, "app-2", "/read?path=note")).status, 200)
      assert.strictEqual((yield* request(host, "app-2", "/remember")).body.trim(), "1")
      assert.strictEqual((yield* request(host, "app-1")).status, 404)
    })
  )

  it.effect(
    "one start at a time is one guest's, and not its program's: who never listens holds up nobody",
    () =>
      Effect.gen(function* () {
        const host = yield* makeHost()
        writeFileSync(host.config, `max_concurrent_vm_starts = 1\n${readFileSync(host.config, "utf8")}`)
        const tenant = yield* tenantLayer(host)
        yield* runDaemon(host)
        yield* put(
          host,
          documentOf(instance("app-1", tenant, { args: ["--never-listen"] }), instance("app-2", tenant))
        )
        yield* awaitState(host, "app-2", "running")
        assert.strictEqual((yield* request(host, "app-2")).status, 200)
        const silent = (yield* readReport(host)).instances.find(({ appId }) => appId === "app-1")
        assert.include(["starting", "failed"], silent?.state)
        assert.lengthOf(vmmsOf(host), 2)
      })
  )
})
