/** Apps whose volumes start with the contents of an archive, on real microVMs. */
import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import {
  awaitHost,
  awaitState,
  document,
  instance,
  makeHost,
  put,
  putObject,
  request,
  runDaemon,
  tenantLayer,
  volume
} from "./harness.ts"

/** A gzipped tar of some files, private to their owner, who is not 65534. */
const archive = Effect.acquireUseRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "nibrunner-seed-"))),
  (folder) =>
    Effect.sync(() => {
      mkdirSync(join(folder, "tree/nested"), { recursive: true })
      writeFileSync(join(folder, "tree/nested/hello.txt"), "hello from the archive\n", { mode: 0o600 })
      const words = ["--owner=1000", "--group=1000", "-C", join(folder, "tree"), "."]
      execFileSync("tar", ["-czf", join(folder, "seed.tgz"), ...words])
      return readFileSync(join(folder, "seed.tgz"))
    }),
  (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
)

layer(NodeServices.layer, { excludeTestServices: true })("a volume with initial contents", (it) => {
  it.effect("has its files where the app looks for them, and they are the app's to read and write", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const tenant = yield* tenantLayer(host)
      const digest = putObject(host, "seed-1", yield* archive)
      const initialContents = { digest, objectKey: "seed-1", destinationPath: "/app/data" }
      yield* runDaemon(host)
      yield* put(host, document([volume("app-1", { initialContents })], [instance("app-1", tenant)]))
      yield* awaitState(host, "app-1", "running")
      const read = Effect.map(request(host, "app-1", "/read?path=nested/hello.txt"), ({ body }) => body)
      assert.strictEqual(yield* read, "hello from the archive\n")
      assert.strictEqual(
        (yield* request(host, "app-1", "/write?path=nested/hello.txt&body=changed")).status,
        200
      )
      assert.strictEqual((yield* request(host, "app-1", "/write?path=nested/new&body=new")).status, 200)

      // Another release, and other initial contents: the volume is not filled again.
      const later = { ...initialContents, digest: putObject(host, "seed-2", Buffer.from("another")) }
      yield* put(
        host,
        document(
          [volume("app-1", { initialContents: { ...later, objectKey: "seed-2" } })],
          [instance("app-1", tenant, { deploymentId: "dep-2" })]
        )
      )
      yield* awaitHost(host, "the next release to run", ({ instances }) =>
        instances.some(({ deploymentId, state }) => deploymentId === "dep-2" && state === "running")
      )
      assert.match(yield* read, /^changed/)
    })
  )

  it.effect("that cannot be unpacked fails by name, and no other app with it", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const tenant = yield* tenantLayer(host)
      const digest = putObject(host, "seed-1", Buffer.from("this is no archive"))
      const initialContents = { digest, objectKey: "seed-1", destinationPath: "/app/data" }
      yield* runDaemon(host)
      yield* put(
        host,
        document(
          [volume("app-1", { initialContents }), volume("app-2")],
          [instance("app-1", tenant), instance("app-2", tenant)]
        )
      )
      const report = yield* awaitHost(host, "the volume to fail", ({ volumes }) =>
        volumes.some(({ volumeId, state }) => volumeId === "app-1-vol" && state === "failed")
      )
      assert.strictEqual(
        report.volumes.find(({ volumeId }) => volumeId === "app-1-vol")?.message,
        'volume app-1-vol cannot be created: its initial contents, object "seed-1": the archive is neither a tar, plain or gzipped, nor a zip'
      )
      yield* awaitState(host, "app-2", "running")
    })
  )
})
