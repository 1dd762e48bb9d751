/** What an operator is told of a real host that something is wrong with, while its apps go on. */
import { spawnSync } from "node:child_process"
import { renameSync, rmSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import type { LocalHost } from "../../scripts/local/host.ts"
import { httpPortOfSlot, rawPortOfSlot } from "../../src/config/ports.ts"
import {
  awaitHost,
  awaitInstance,
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

const program = join(import.meta.dirname, "../../bin/nibrunnerd.ts")

const run = (host: LocalHost, ...args: ReadonlyArray<string>) =>
  spawnSync(process.execPath, [program, ...args], {
    encoding: "utf8",
    env: { ...process.env, NIBRUNNER_CONFIG: host.config }
  })

/** Another program that listens on a port of 127.0.0.1, until it is released. */
const taken = (port: number) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly release: Effect.Effect<void> }>((resume) => {
      const server = createServer()
      server.listen(port, "127.0.0.1", () =>
        resume(
          Effect.succeed({
            release: Effect.callback<void>((done) => {
              server.close(() => done(Effect.void))
            })
          })
        )
      )
    }),
    ({ release }) => release
  )

layer(NodeServices.layer, { excludeTestServices: true })("an operator", (it) => {
  it.effect("is told by an app which of its ports another program has, while its hostname works", () =>
    Effect.gen(function* () {
      const host = yield* makeHost({ rawPorts: 2 })
      const tenant = yield* tenantLayer(host)
      // The first app of a host has slot 0.
      const [own, raw] = [httpPortOfSlot(0), rawPortOfSlot(0, 0)]
      const others = yield* Effect.forEach([own, raw], taken)
      yield* runDaemon(host)
      const ports = [
        { name: "echo", guestPort: 7000 },
        { name: "other", guestPort: 7001 }
      ]
      yield* put(host, documentOf(instance("app-1", tenant, { ports })))
      const report = yield* awaitState(host, "app-1", "running")
      assert.strictEqual(
        report.message,
        `its own port cannot be reached: 127.0.0.1 port ${own} cannot be listened on: another program listens there; its port echo cannot be reached: 127.0.0.1 port ${raw} cannot be listened on: another program listens there; tried again every few seconds`
      )
      assert.strictEqual((yield* request(host, "app-1")).status, 200)
      assert.match(run(host, "status").stdout, new RegExp(` ${raw}→7000 ${raw + 1}→7001 `, "u"))
      yield* Effect.forEach(others, ({ release }) => release)
      yield* awaitInstance(host, "app-1", "it says nothing", ({ message }) => message === undefined)
    })
  )

  it.effect("is told that runtime_dir was moved away, and nothing is lost once it is back", () =>
    Effect.gen(function* () {
      const { host, tenant, daemon } = yield* startHost()
      const desired = documentOf(instance("app-1", tenant))
      yield* put(host, desired)
      yield* awaitState(host, "app-1", "running")
      const vmms = vmmsOf(host)
      renameSync(host.runtime, `${host.runtime}.old`)
      // Each document that is taken up is followed by a report, which is written once a minute otherwise.
      yield* put(host, { ...desired, revision: "2" })
      const told = yield* awaitHost(host, "it is told", ({ message }) => message !== null)
      assert.match(told.message ?? "", /\(paths\.runtime_dir\) was removed, moved away or covered/u)
      assert.strictEqual((yield* request(host, "app-1")).status, 200)
      assert.match(run(host, "sleep", "app-1").stderr, /no daemon of this host runs/u)
      renameSync(`${host.runtime}.old`, host.runtime)
      yield* put(host, { ...desired, revision: "3" })
      yield* awaitHost(host, "it is told no more", ({ message }) => message === null)
      yield* daemon.stop
      yield* runDaemon(host)
      yield* awaitState(host, "app-1", "running")
      assert.deepStrictEqual(vmmsOf(host), vmms)
    })
  )

  it.effect("is told what keeps a daemon from a microVM whose sockets are gone, and what ends that", () =>
    Effect.gen(function* () {
      const { host, tenant, daemon } = yield* startHost()
      yield* put(host, documentOf(instance("app-1", tenant)))
      yield* awaitState(host, "app-1", "running")
      rmSync(host.runtime, { recursive: true })
      yield* daemon.stop
      const [vmm] = vmmsOf(host)
      yield* runDaemon(host)
      const told = yield* awaitInstance(host, "app-1", "it is told", ({ message }) => message !== undefined)
      assert.match(
        told.message ?? "",
        new RegExp(`^its microVM cannot be taken up, .*once its process has ended \\(kill ${vmm}\\)`, "u")
      )
      process.kill(vmm ?? 0)
      yield* awaitState(host, "app-1", "running")
      assert.strictEqual((yield* request(host, "app-1")).status, 200)
    })
  )
})
