import { spawnSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { root } from "./imports.ts"

const folder = mkdtempSync(join(tmpdir(), "nibrunner-counts-"))
afterAll(() => rmSync(folder, { recursive: true }))

const file = (status: string, ...tests: ReadonlyArray<string>) => ({
  name: "some.test.ts",
  status,
  message: "",
  assertionResults: tests.map((test) => ({ status: test }))
})

const counts = (...testResults: ReadonlyArray<ReturnType<typeof file>>) => {
  const report = join(folder, "report.json")
  writeFileSync(report, JSON.stringify({ testResults }))
  const { status, stdout } = spawnSync(process.execPath, [join(root, "scripts/counts.mjs"), report], {
    encoding: "utf8"
  })
  return [stdout.trim(), status]
}

describe("the counts of a run", () => {
  it("are those of its tests", () => {
    assert.deepStrictEqual(counts(file("passed", "passed", "passed"), file("passed", "passed", "pending")), [
      "3 passed, 0 failed",
      0
    ])
  })

  it("are those of all reports together", () => {
    const reports = ["one.json", "two.json"].map((name) => join(folder, name))
    for (const report of reports)
      writeFileSync(report, JSON.stringify({ testResults: [file("passed", "passed", "passed")] }))
    const { status, stdout } = spawnSync(process.execPath, [join(root, "scripts/counts.mjs"), ...reports], {
      encoding: "utf8"
    })
    assert.deepStrictEqual([stdout.trim(), status], ["4 passed, 0 failed", 0])
  })

  it("fail the run when a test failed", () => {
    assert.deepStrictEqual(counts(file("failed", "passed", "failed")), ["1 passed, 1 failed", 1])
  })

  it("fail the run when a file could not be loaded", () => {
    assert.deepStrictEqual(counts(file("passed", "passed"), file("failed")), ["1 passed, 1 failed", 1])
  })

  it("fail the run when no test ran", () => {
    assert.deepStrictEqual(counts(), ["0 passed, 0 failed", 1])
    assert.deepStrictEqual(counts(file("passed", "pending")), ["0 passed, 0 failed", 1])
  })

  it("fail the run when there is no report", () => {
    rmSync(join(folder, "report.json"), { force: true })
    const { status } = spawnSync(process.execPath, [
      join(root, "scripts/counts.mjs"),
      join(folder, "report.json")
    ])
    assert.strictEqual(status, 1)
  })
})
