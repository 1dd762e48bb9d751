import { chmodSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { tscKhz } from "../../../layers/hypervisor/qemu/accelerator.ts"
import { hostBootId } from "../../../layers/hypervisor/qemu/process.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

/** A probe that prints this, and a line into `runs` for each time that it was run. */
const probe = (directory: string, script: string) => {
  const path = join(directory, "probe")
  writeFileSync(path, `#!/bin/sh\necho run >> ${join(directory, "runs")}\n${script}\n`)
  chmodSync(path, 0o755)
  return path
}

const runs = (directory: string) => readFileSync(join(directory, "runs"), "utf8").split("\n").length - 1

describe("the frequency of the TSC", () => {
  const test = (
    sentence: string,
    body: (directory: string) => Effect.Effect<void, unknown, NodeServices.NodeServices>
  ) =>
    it.live(sentence, () => Effect.flatMap(temporaryDirectory, body).pipe(Effect.provide(NodeServices.layer)))

  test("is measured once per boot of the host", (directory) =>
    Effect.gen(function* () {
      const path = probe(directory, "echo 2596128")
      assert.strictEqual(yield* tscKhz(directory, path), 2_596_128)
      assert.strictEqual(yield* tscKhz(directory, path), 2_596_128)
      assert.strictEqual(runs(directory), 1)
    }))

  test("is measured again after another boot, and when what was noted is no frequency", (directory) =>
    Effect.gen(function* () {
      const path = probe(directory, "echo 2596128")
      for (const noted of [
        "00000000-0000-4000-8000-000000000000 999999\n",
        `${hostBootId()} 12\n`,
        "",
        "x"
      ]) {
        writeFileSync(join(directory, "tsc-khz"), noted)
        assert.strictEqual(yield* tscKhz(directory, path), 2_596_128)
      }
      assert.strictEqual(runs(directory), 4)
    }))

  test("cannot be had from a probe that fails or prints something else: the probe is named", (directory) =>
    Effect.gen(function* () {
      for (const [script, words] of [
        ["echo nonsense", "which is no frequency"],
        ["echo 'no TSC here' >&2; exit 1", "no TSC here"],
        ["kill -9 $$", "probe"]
      ] as const) {
        const path = probe(directory, script)
        const error = yield* Effect.flip(tscKhz(directory, path))
        assert.include(error.message, path)
        assert.include(error.message, words)
      }
      assert.include((yield* Effect.flip(tscKhz(directory, "/no/such/probe"))).message, "/no/such/probe")
    }))
})
