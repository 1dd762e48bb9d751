import { chmodSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect } from "effect"
import { spawnVmm } from "../../../layers/hypervisor/qemu/spawn.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const script = (body: string) =>
  Effect.map(temporaryDirectory, (directory) => {
    const path = join(directory, "qemu")
    writeFileSync(path, `#!/bin/sh\n${body}\n`)
    chmodSync(path, 0o755)
    return path
  })

describe("the start of a QEMU", () => {
  it.live("gives its session and its directory to it, and of the daemon's environment PATH alone", () =>
    Effect.gen(function* () {
      process.env.NIBRUNNER_TEST_SECRET = "s3cret"
      const program = yield* script("env >&2; pwd >&2; ps -o sid= -p $$ >&2; echo $$ >&2")
      const child = yield* spawnVmm(program, [])
      assert.deepStrictEqual(yield* Deferred.await(child.ended), { code: 0, signal: null })
      const said = child.stderr.text().trim().split("\n")
      assert.notInclude(child.stderr.text(), "s3cret")
      const [directory, session, pid] = said.slice(-3).map((line) => line.trim())
      assert.strictEqual(directory, "/")
      assert.strictEqual(session, pid)
    })
  )

  it.live("is not spared with its daemon when memory runs out", () =>
    Effect.gen(function* () {
      const own = "/proc/self/oom_score_adj"
      const before = readFileSync(own, "utf8")
      writeFileSync(own, "300")
      const child = yield* spawnVmm(yield* script("read go; cat /proc/$$/oom_score_adj >&2"), [], {
        stdin: true
      })
      writeFileSync(own, before)
      child.stdin?.end("go\n")
      yield* Deferred.await(child.ended)
      assert.strictEqual(child.stderr.text().trim(), "0")
    })
  )

  it.live("tells how it ended, with the last of what it wrote", () =>
    Effect.gen(function* () {
      const failing = yield* spawnVmm(
        yield* script("yes spam | head -c 100000 >&2; echo last words >&2; exit 7"),
        []
      )
      assert.deepStrictEqual(yield* Deferred.await(failing.ended), { code: 7, signal: null })
      assert.isAtMost(failing.stderr.text().length, 4096)
      assert.isTrue(failing.stderr.text().endsWith("last words\n"))
      const killed = yield* spawnVmm(yield* script("kill -ABRT $$"), [])
      assert.deepStrictEqual(yield* Deferred.await(killed.ended), { code: null, signal: "SIGABRT" })
    })
  )

  it.live("fails with the program's name where it is not there, and where it is no program", () =>
    Effect.gen(function* () {
      assert.match(
        yield* Effect.flip(spawnVmm("/no/such/qemu", [])),
        /^\/no\/such\/qemu cannot be run: it is not there$/u
      )
      assert.match(yield* Effect.flip(spawnVmm("/etc/passwd", [])), /^\/etc\/passwd cannot be run: .*EACCES/u)
      const large = "x".repeat(8 * 1024 * 1024)
      assert.match(yield* Effect.flip(spawnVmm("/bin/true", [large])), /^\/bin\/true cannot be run: .*E2BIG/u)
    })
  )
})
