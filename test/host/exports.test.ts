/** Checkpoints and exports of apps that run, on ZeroFS's stand-in or on ZeroFS itself where `ZEROFS_BINARY` names it. */
import { execFileSync } from "node:child_process"
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { LocalHost } from "../../scripts/local/host.ts"
import { readReport } from "../../scripts/local/report.ts"
import { sleepNow } from "../../scripts/local/sleep.ts"
import { tool, unpacked } from "../support/bundle/fixture.ts"
import { temporaryDirectory } from "../support/temporary.ts"
import { testZerofs } from "../support/zerofs/fixture.ts"
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

const live = (sentence: string, body: Effect.Effect<void, unknown, never>) =>
  it.live(sentence, () => body, 400_000)

const host = Effect.gen(function* () {
  const zerofs = yield* testZerofs
  yield* zerofs.start
  const local = yield* makeHost({ zerofs: zerofs.section })
  mkdirSync(join(local.folder, "exports"))
  const layer = yield* tenantLayer(local)
  const daemon = yield* runDaemon(local)
  return { zerofs, local, layer, daemon }
})

const rawExport = (exportId: string, appId: string, more: Record<string, unknown> = {}) => ({
  exportId,
  appId,
  volumeId: `${appId}-vol`,
  objectKey: `${exportId}.tar.gz`,
  desiredState: "present",
  ...more
})

const objectOf = (local: LocalHost, exportId: string) => join(local.folder, "exports", `${exportId}.tar.gz`)

const awaitExport = (local: LocalHost, exportId: string) =>
  Effect.gen(function* () {
    const report = yield* awaitHost(local, `export ${exportId} is ready`, ({ exports }) =>
      exports.some((one) => one.exportId === exportId && one.state === "ready")
    ).pipe(
      Effect.tapError(() =>
        Effect.ignore(
          Effect.flatMap(readReport(local), ({ exports, instances, volumes }) =>
            Effect.logError(JSON.stringify({ exports, instances, volumes }))
          )
        )
      )
    )
    const found = report.exports.find((one) => one.exportId === exportId)
    assert.strictEqual(readFileSync(objectOf(local, exportId)).length, found?.sizeBytes)
    return found
  })

/** The names of the checkpoints that ZeroFS has. */
const checkpointsOf = (section: { readonly binary: string; readonly config_file: string }): string =>
  execFileSync(section.binary, ["checkpoint", "list", "--config", section.config_file], {
    encoding: "utf8",
    env: { ...process.env, ZEROFS_PASSWORD: process.env.ZEROFS_PASSWORD ?? "password" }
  })

/** A layer of files that the app may change. */
const contentLayer = (local: LocalHost, directory: string) => {
  const root = join(directory, "layer")
  const content = join(root, "app/content")
  mkdirSync(join(content, "folder"), { recursive: true })
  for (const name of ["gone", "replaced", "kept", "folder/a", "folder/b"])
    writeFileSync(join(content, name), `${name} of the layer\n`)
  const image = join(directory, "content.squashfs")
  tool("mksquashfs", root, image, "-quiet", "-no-progress", "-force-uid", "65534", "-force-gid", "65534")
  const digest = putObject(local, "content", readFileSync(image))
  return { kind: "filesystem", digest, objectKey: "content" }
}

/** Changes what the layer holds when it runs for the first time, tells what it sees, and serves. */
const script = `
if [ ! -e /app/data/once ]; then
  cd /app/content && rm gone && echo new > replaced && rm -r folder && mkdir folder && echo c > folder/c
  cd /app/data && ln -s nowhere link && mkfifo fifo && echo one > first && ln first second
  truncate -s 3M sparse && printf end >> sparse && chmod 640 first && mkdir -p deep/er && touch deep/er/x once
fi
cd /app
find . -type d -printf '%p d %m\\n' -o ! -type p -printf '%p %y %m %s %l\\n' | sort > /tmp/list
find . -type f -print0 | sort -z | xargs -0 sha256sum >> /tmp/list
exec /app/server`

/**
 * A tree without its owners and the fractions of its times, the times and sizes of directories, what means nothing of a
 * whiteout, and the time of a file that PID 1 writes at each boot.
 */
const tree = (root: string): string =>
  execFileSync(
    "bash",
    [
      "-c",
      `cd "$1" && find . -type d -printf '%p d %m\\n' -o -type c -printf '%p c\\n' -o ! -path ./etc/resolv.conf -printf '%p %y %m %s %n %T@ %l\\n' | sed 's/\\.[0-9]* / /' | sort
       find . -type f -print0 | sort -z | xargs -0 -r sha256sum
       find . -print0 | sort -z | xargs -0 -r getfattr -h -d -m - 2>/dev/null`,
      "bash",
      root
    ],
    { encoding: "utf8" }
  )

describe("an export", () => {
  live(
    "goes back in as another app's initial contents, which sees the same files, also those that it has deleted or replaced",
    Effect.gen(function* () {
      const { zerofs, local, layer } = yield* host
      const directory = yield* temporaryDirectory
      const content = contentLayer(local, directory)
      const app = (appId: string) =>
        instance(appId, layer, {
          layers: [content, layer],
          program: "/bin/sh",
          args: ["-c", script]
        })
      const seen = (appId: string) =>
        Effect.map(request(local, appId, "/read?path=/tmp/list"), ({ body }) => body)
      const environment = { A: 'it\'s "so"', B: "x" }
      const first = {
        ...document([volume("a")], [app("a")]),
        exports: [rawExport("e-1", "a", { environment })]
      }
      yield* put(local, document([volume("a")], [app("a")]))
      yield* awaitState(local, "a", "running")
      yield* put(local, first)
      const ready = yield* awaitExport(local, "e-1")
      assert.strictEqual(ready?.message, "left out: 1 FIFO")
      assert.notInclude(checkpointsOf(zerofs.section), "export-")
      const before = yield* seen("a")
      assert.notInclude(before, "gone")
      assert.notInclude(before, "folder/a")
      assert.include(before, "folder/c")

      const bundle = unpacked(objectOf(local, "e-1"), join(directory, "bundle"))
      const read = tool("sh", "-c", `. "$1"; printf '%s\\n' "$A" "$B"`, "sh", join(bundle, ".env"))
      assert.strictEqual(read, 'it\'s "so"\nx\n')
      const seed = join(directory, "seed.tar.gz")
      tool("tar", "--xattrs", "--xattrs-include=*", "-C", join(bundle, "data"), "-czf", seed, ".")
      const digest = putObject(local, "seed", readFileSync(seed))
      const initialContents = { digest, objectKey: "seed", destinationPath: "/" }
      yield* put(local, {
        ...document([volume("a"), volume("b", { initialContents })], [app("a"), app("b")]),
        exports: [rawExport("e-1", "a", { environment }), rawExport("e-2", "b")]
      })
      yield* awaitState(local, "b", "running")
      assert.strictEqual(yield* seen("b"), before)
      yield* awaitExport(local, "e-2")
      const again = unpacked(objectOf(local, "e-2"), join(directory, "again"))
      assert.strictEqual(tree(join(again, "data")), tree(join(bundle, "data")))
      assert.isFalse(existsSync(join(again, ".env")))
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  live(
    "lets its app wait for less than a second beside ZeroFS's own work, and no write of it or of another app fails",
    Effect.gen(function* () {
      const { zerofs, local, layer } = yield* host
      const both = document([volume("a"), volume("b")], [instance("a", layer), instance("b", layer)])
      yield* put(local, both)
      yield* awaitState(local, "a", "running")
      yield* awaitState(local, "b", "running")
      /** Writes until it is interrupted; the longest that a write has taken, in ms. */
      const longest = { a: 0, b: 0 }
      const writing = (app: "a" | "b") =>
        Effect.forever(
          Effect.gen(function* () {
            const began = performance.now()
            const { status } = yield* request(local, app, `/write?path=/app/data/file&body=${began}`)
            assert.strictEqual(status, 200)
            longest[app] = Math.max(longest[app], performance.now() - began)
            yield* Effect.sleep(20)
          })
        )
      const writers = yield* Effect.forkChild(Effect.all([writing("a"), writing("b")], { concurrency: 2 }), {
        startImmediately: true
      })
      // A machine that is busy with something else for a moment is no freeze: the best of three counts.
      const stalls: Array<number> = []
      const exports: Array<unknown> = []
      for (const id of ["e-1", "e-2", "e-3"]) {
        // The stand-in is slow to start, and a flush, a checkpoint and a listing are asked of it meanwhile.
        const began = performance.now()
        for (let command = 0; command < 3; command++) checkpointsOf(zerofs.section)
        const commands = performance.now() - began
        // The writes that this has held up are over.
        yield* Effect.all([request(local, "a"), request(local, "b"), Effect.sleep(500)])
        longest.a = 0
        exports.push(rawExport(id, "a"))
        yield* put(local, { ...both, exports })
        yield* awaitExport(local, id)
        stalls.push(longest.a - commands)
        if (longest.a - commands < 1000) break
      }
      assert.isBelow(Math.min(...stalls), 1000)
      assert.isUndefined(writers.pollUnsafe(), "every write was answered")
      yield* Fiber.interrupt(writers)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  live(
    "of an app that sleeps has what it had written, and does not wake it; a checkpoint outlives the daemon",
    Effect.gen(function* () {
      const { zerofs, local, layer, daemon } = yield* host
      const directory = yield* temporaryDirectory
      const sleepy = instance("a", layer, {
        desiredState: "on-request",
        activation: { sleepWhen: { kind: "never" } }
      })
      const desired = document([volume("a")], [sleepy])
      yield* put(local, desired)
      yield* awaitState(local, "a", "running")
      yield* request(local, "a", "/write?path=/app/data/one&body=first")
      yield* sleepNow(local, "a")
      const checkpoints = [{ checkpointId: "c-1", volumeId: "a-vol", desiredState: "present" }]
      yield* put(local, { ...desired, checkpoints, exports: [rawExport("e-1", "a")] })
      yield* awaitExport(local, "e-1")
      yield* awaitState(local, "a", "idle")
      const bundle = unpacked(objectOf(local, "e-1"), join(directory, "bundle"))
      assert.strictEqual(readFileSync(join(bundle, "data/app/data/one"), "utf8"), "first")

      const isReady = ({
        checkpoints: [found]
      }: {
        readonly checkpoints: ReadonlyArray<{ state: string }>
      }) => found?.state === "ready"
      const before = yield* awaitHost(local, "the checkpoint is ready", isReady)
      yield* daemon.kill
      const killedAt = Date.now()
      yield* runDaemon(local)
      const after = yield* awaitHost(
        local,
        "the next daemon's report",
        (report) => isReady(report) && Date.parse(report.reportedAt) > killedAt
      )
      assert.deepStrictEqual(after.checkpoints, before.checkpoints)
      assert.include(checkpointsOf(zerofs.section), "c-1")
      yield* put(local, { ...desired, checkpoints: [{ ...checkpoints[0], desiredState: "absent" }] })
      yield* awaitHost(local, "it is deleted", ({ checkpoints: [found] }) => found?.state === "deleted")
      assert.notInclude(checkpointsOf(zerofs.section), "c-1")
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})
