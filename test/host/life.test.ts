/** A document becomes an app that answers, on real microVMs. */
import { createHash } from "node:crypto"
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import {
  awaitHost,
  awaitInstance,
  awaitState,
  document,
  documentOf,
  instance,
  put,
  request,
  startHost,
  vmmsOf,
  volume
} from "./harness.ts"

layer(NodeServices.layer, { excludeTestServices: true })("an app on a real microVM", (it) => {
  it.effect(
    "answers 100 fresh connections in a row from the moment that it is first reported as running",
    () =>
      Effect.gen(function* () {
        const { host, tenant } = yield* startHost()
        yield* put(host, documentOf(instance("app-1", tenant)))
        const report = yield* awaitState(host, "app-1", "running")
        const answers = yield* Effect.forEach(Array.from({ length: 100 }), () => request(host, "app-1"))
        assert.deepStrictEqual(
          answers.filter(({ status }) => status !== 200),
          []
        )
        assert.strictEqual(answers[0]?.body.trim(), "ok")
        assert.strictEqual(report.hostPort, 21000)
        assert.deepStrictEqual(report.layerDigests, [tenant.digest])
        assert.strictEqual((yield* request(host, "nobody")).status, 404)
      })
  )

  it.effect("runs as uid 65534 in its working directory, with the environment that it was promised", () =>
    Effect.gen(function* () {
      const { host, tenant } = yield* startHost()
      const environment = { URL: "http://${NIBRUN_HOSTNAME}:$NIBRUN_HTTP_PORT/", COST: "$5 and $HOME" }
      yield* put(host, documentOf(instance("app-1", tenant, { environment })))
      yield* awaitState(host, "app-1", "running")
      const of = (name: string) =>
        Effect.map(request(host, "app-1", `/env?name=${name}`), ({ body }) => body.trim())
      assert.strictEqual(yield* of("URL"), "http://app-1.example.com:3000/")
      assert.strictEqual(yield* of("COST"), "$5 and $HOME")
      assert.strictEqual(yield* of("PORT"), "3000")
      assert.strictEqual(yield* of("NIBRUN_HTTP_PORT"), "3000")
      assert.strictEqual(yield* of("NIBRUN_HOSTNAME"), "app-1.example.com")
      const who = (yield* request(host, "app-1", "/whoami")).body
      assert.match(who, /65534/)
      assert.match(who, /\/app\/data/)
    })
  )

  it.effect("keeps its volume through redeploys, stops and starts, and loses it only when it is absent", () =>
    Effect.gen(function* () {
      const { host, tenant } = yield* startHost()
      const remember = Effect.map(request(host, "app-1", "/remember"), ({ body }) => body.trim())
      const read = Effect.map(request(host, "app-1", "/read?path=note"), ({ body }) => body.trim())

      yield* put(host, documentOf(instance("app-1", tenant)))
      yield* awaitState(host, "app-1", "running")
      assert.strictEqual((yield* request(host, "app-1", "/write?path=note&body=kept")).status, 200)
      assert.strictEqual(yield* remember, "1")
      const first = vmmsOf(host)

      // The same deployment under another config and hostnames is left alone.
      yield* put(host, documentOf(instance("app-1", tenant, { environment: { A: "b" } })))
      yield* awaitHost(
        host,
        "the new document",
        ({ acceptedDigest }) => acceptedDigest === digestOf(host.desired)
      )
      assert.strictEqual(yield* remember, "2")
      assert.deepStrictEqual(vmmsOf(host), first)

      yield* put(host, documentOf(instance("app-1", tenant, { deploymentId: "dep-2" })))
      yield* awaitInstance(
        host,
        "app-1",
        "dep-2 runs",
        (app) => app.deploymentId === "dep-2" && app.state === "running"
      )
      assert.strictEqual(yield* remember, "1")
      assert.strictEqual(yield* read, "kept")
      assert.notDeepEqual(vmmsOf(host), first)

      yield* put(
        host,
        documentOf(instance("app-1", tenant, { deploymentId: "dep-2", desiredState: "stopped" }))
      )
      yield* awaitState(host, "app-1", "stopped")
      assert.deepStrictEqual(vmmsOf(host), [])
      assert.strictEqual((yield* request(host, "app-1")).status, 503)

      yield* put(host, documentOf(instance("app-1", tenant, { deploymentId: "dep-2" })))
      yield* awaitState(host, "app-1", "running")
      assert.strictEqual(yield* read, "kept")

      yield* put(host, document([volume("app-1")], []))
      yield* awaitHost(host, "the instance is gone", ({ instances }) => instances.length === 0)
      assert.strictEqual((yield* request(host, "app-1")).status, 404)
      yield* Effect.suspend(() => (vmmsOf(host).length === 0 ? Effect.void : Effect.fail("still up"))).pipe(
        Effect.eventually,
        Effect.timeout("60 seconds")
      )
      assert.isTrue(existsSync(join(host.folder, "state/volumes/app-1-vol.img")))

      yield* put(host, document([volume("app-1", { desiredState: "absent" })], []))
      const report = yield* awaitHost(
        host,
        "the volume is deleted",
        ({ volumes }) => volumes[0]?.state === "deleted"
      )
      assert.deepStrictEqual(report.instances, [])
      yield* put(host, document([], []))
      yield* awaitHost(host, "nothing is left", ({ volumes }) => volumes.length === 0)
      assert.deepStrictEqual(readdirSync(join(host.folder, "state/volumes")), [])
      assert.deepStrictEqual(readdirSync(host.logs), [])
      assert.deepStrictEqual(readdirSync(join(host.runtime, "vm")), [])
    })
  )

  it.effect("boots beside others, three at a time, each on its own volume", () =>
    Effect.gen(function* () {
      const { host, tenant } = yield* startHost()
      const apps = ["app-1", "app-2", "app-3"]
      yield* put(host, documentOf(...apps.map((app) => instance(app, tenant))))
      yield* Effect.forEach(apps, (app) => awaitState(host, app, "running"))
      yield* Effect.forEach(apps, (app) => request(host, app, `/write?path=name&body=${app}`))
      for (const app of apps)
        assert.strictEqual((yield* request(host, app, "/read?path=name")).body.trim(), app)
      assert.strictEqual(vmmsOf(host).length, 3)
    })
  )

  it.effect("is restarted inside its guest when its program exits, and the report tells of it", () =>
    Effect.gen(function* () {
      const { host, tenant } = yield* startHost()
      yield* put(host, documentOf(instance("app-1", tenant)))
      yield* awaitState(host, "app-1", "running")
      const before = vmmsOf(host)
      yield* Effect.ignore(request(host, "app-1", "/exit?code=3"))
      const report = yield* awaitInstance(
        host,
        "app-1",
        "restarted",
        ({ restartCount }) => restartCount === 1
      )
      assert.deepStrictEqual(report.lastRestart?.exit, { code: 3 })
      assert.strictEqual(report.lastRestart?.attempt, 1)
      assert.strictEqual(report.lastRestart?.budget, 3)
      yield* Effect.filterOrFail(request(host, "app-1"), ({ status }) => status === 200).pipe(
        Effect.eventually,
        Effect.timeout("60 seconds")
      )
      assert.deepStrictEqual(vmmsOf(host), before)
    })
  )

  it.effect(
    "is replaced under the same port when its VMM is killed, while its neighbour keeps its memory",
    () =>
      Effect.gen(function* () {
        const { host, tenant } = yield* startHost()
        yield* put(host, documentOf(instance("app-1", tenant), instance("app-2", tenant)))
        const { hostPort } = yield* awaitState(host, "app-1", "running")
        yield* awaitState(host, "app-2", "running")
        yield* request(host, "app-1", "/write?path=note&body=kept")
        yield* request(host, "app-2", "/remember")
        const victim = vmmsOf(host).find((pid) =>
          readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(
            `${join(host.runtime, "vm", String(slotOf(hostPort)))}\0`
          )
        )
        assert.isDefined(victim)
        process.kill(victim ?? 0, "SIGKILL")
        yield* awaitInstance(host, "app-1", "its end is seen", ({ state }) => state !== "running")
        const again = yield* awaitState(host, "app-1", "running")
        assert.strictEqual(again.hostPort, hostPort)
        assert.strictEqual(again.restartCount, 0)
        assert.strictEqual((yield* request(host, "app-1", "/read?path=note")).body.trim(), "kept")
        assert.strictEqual((yield* request(host, "app-2", "/remember")).body.trim(), "2")
      })
  )

  it.effect("has what it prints in its log, a record a line, in order", () =>
    Effect.gen(function* () {
      const { host, tenant } = yield* startHost()
      yield* put(host, documentOf(instance("app-1", tenant)))
      yield* awaitState(host, "app-1", "running")
      assert.strictEqual((yield* request(host, "app-1", "/log?lines=2000")).body.trim(), "2000")
      const path = join(host.logs, "app-1.log")
      const records = yield* Effect.suspend(() => {
        const lines = readFileSync(path, "utf8").trim().split("\n")
        return lines.some((line) => / 2000$|[^0-9]2000$/u.test(line))
          ? Effect.succeed(lines)
          : Effect.fail("not yet")
      }).pipe(Effect.eventually, Effect.timeout("60 seconds"))
      for (const record of records) {
        assert.match(record, /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z (stdout|stderr) [0-9a-f-]+\/\d+ /u)
      }
      const sequences = records.map((record) => Number(/ [0-9a-f-]+\/(\d+) /u.exec(record)?.[1]))
      assert.deepStrictEqual(
        sequences,
        sequences.map((_, index) => index)
      )
      assert.strictEqual(statSync(path).mode & 0o077, 0)
    })
  )
})

/** Source: the slot arithmetic, `21000 + 8n`. */
const slotOf = (hostPort: number | undefined): number => ((hostPort ?? 0) - 21_000) / 8

const digestOf = (path: string): string => createHash("sha256").update(readFileSync(path)).digest("hex")
