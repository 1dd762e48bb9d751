/** The daemon's end stops no app, and its death at any step of a boot leaves nothing that the next cannot repair. */
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { LocalHost } from "../../scripts/local/host.ts"
import {
  awaitHost,
  awaitState,
  documentOf,
  instance,
  makeHost,
  put,
  request,
  runDaemon,
  startHost,
  tenantLayer,
  vmmsOf
} from "./harness.ts"
import { mortalDaemon } from "./mortal-daemon.ts"

/** Runs a daemon that kills itself at the point; succeeds when it has. */
const crashAt = (host: LocalHost, point: string) =>
  Effect.scoped(Effect.flatMap(mortalDaemon(host, point), ({ died }) => died))

/** Every place where a boot changes something, and the moments right before and after. */
const points = [
  "state.accept:after",
  "state.saveVolume:after",
  "volumes.provision:before",
  "volumes.provision:after",
  "state.claimSlot:before",
  "state.claimSlot:after",
  "images.prepare:before",
  "images.prepare:after",
  "volumes.attach:after",
  "network.attach:after",
  "hypervisor.boot:before",
  "hypervisor.boot:after",
  "guest.connect:before",
  "guest.connect:after",
  "session.handOver:before",
  "session.handOver:after"
]

layer(NodeServices.layer, { excludeTestServices: true })("a daemon", (it) => {
  it.effect(
    "that is stopped leaves its microVMs running, and the next one takes them up: same process, no boot",
    () =>
      Effect.gen(function* () {
        const { host, tenant, daemon: first } = yield* startHost()
        yield* put(host, documentOf(instance("app-1", tenant)))
        const before = yield* awaitState(host, "app-1", "running")
        yield* request(host, "app-1", "/remember")
        const vmms = vmmsOf(host)
        yield* first.stop
        assert.deepStrictEqual(vmmsOf(host), vmms)

        const restarted = Date.now()
        yield* runDaemon(host)
        yield* awaitHost(host, "the new daemon", ({ reportedAt }) => Date.parse(reportedAt) > restarted)
        const after = yield* awaitState(host, "app-1", "running")
        assert.strictEqual((yield* request(host, "app-1", "/remember")).body.trim(), "2")
        assert.deepStrictEqual(vmmsOf(host), vmms)
        assert.strictEqual(after.startedAt, before.startedAt)
        // Its guest is still spoken with: it can be stopped in order.
        yield* request(host, "app-1", "/write?path=note&body=kept")
        yield* put(host, documentOf(instance("app-1", tenant, { desiredState: "stopped" })))
        yield* awaitState(host, "app-1", "stopped")
        assert.deepStrictEqual(vmmsOf(host), [])
      })
  )

  it.effect("that is killed under a running app is followed by one that takes it up", () =>
    Effect.gen(function* () {
      const { host, tenant, daemon: first } = yield* startHost()
      yield* put(host, documentOf(instance("app-1", tenant)))
      yield* awaitState(host, "app-1", "running")
      yield* request(host, "app-1", "/remember")
      const vmms = vmmsOf(host)
      yield* first.kill
      const restarted = Date.now()
      yield* runDaemon(host)
      yield* awaitHost(host, "the new daemon", ({ reportedAt }) => Date.parse(reportedAt) > restarted)
      yield* awaitState(host, "app-1", "running")
      assert.strictEqual((yield* request(host, "app-1", "/remember")).body.trim(), "2")
      assert.deepStrictEqual(vmmsOf(host), vmms)
    })
  )

  it.effect.each(points)(
    "killed at %s is followed by one that converges: one microVM, nothing left over",
    (point) =>
      Effect.gen(function* () {
        const host = yield* makeHost()
        const tenant = yield* tenantLayer(host)
        yield* put(host, documentOf(instance("app-1", tenant)))
        yield* crashAt(host, point)
        yield* runDaemon(host)
        const report = yield* awaitState(host, "app-1", "running")
        assert.strictEqual((yield* request(host, "app-1")).status, 200)
        assert.strictEqual(report.hostPort, 21000)
        assert.strictEqual(vmmsOf(host).length, 1)
        assert.deepStrictEqual(readdirSync(join(host.runtime, "vm")), ["0"])
        assert.deepStrictEqual(readdirSync(join(host.folder, "state/volumes")), ["app-1-vol.img"])
        assert.deepStrictEqual(readdirSync(join(host.folder, "state/artifacts")), [tenant.digest])
        assert.strictEqual(readdirSync(join(host.folder, "state/layers")).length, 1)
        assert.notInclude(readFileSync(host.log, "utf8"), '"fatal"')
      })
  )
})
