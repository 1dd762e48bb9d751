import { spawnSync } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { HostDesiredState } from "../../../src/document/schema.ts"
import { read, root } from "./imports.ts"

const folder = mkdtempSync(join(tmpdir(), "nibrunner-example-"))
afterAll(() => rmSync(folder, { recursive: true }))

describe("the example hello", () => {
  it("comes with a document that a host accepts once its digest is filled in", () => {
    const document = Schema.decodeUnknownSync(HostDesiredState)(
      JSON.parse(read("examples/hello/desired.json"))
    )
    assert.deepStrictEqual(
      document.instances.map(({ volumeId }) => volumeId),
      document.volumes.map(({ volumeId }) => volumeId)
    )
  })

  it("compiles as its README says, without a warning", () => {
    const { status, stderr } = spawnSync(
      "musl-gcc",
      ["-static", "-Os", "-Wall", "-Wextra", "-Werror", "-o", join(folder, "hello"), "hello.c"],
      { cwd: join(root, "examples/hello"), encoding: "utf8" }
    )
    assert.strictEqual(status, 0, stderr)
  })
})
