/** What the project says to machines, checked by the tools that read it. */
import { spawnSync } from "node:child_process"
import { assert, describe, it } from "@effect/vitest"
import { packages, tasks } from "../../../scripts/packages.mjs"
import { read, root } from "./imports.ts"

const outcome = (command: string, ...args: ReadonlyArray<string>) => {
  const { status, stderr, error } = spawnSync(command, args, { cwd: root, encoding: "utf8" })
  return error === undefined ? { status, stderr } : { status: null, stderr: error.message }
}

describe("flake.nix", () => {
  it("is read by Nix without an error", () => {
    assert.strictEqual(outcome("nix-instantiate", "--parse", "flake.nix").status, 0)
  })

  it("is what the parser would refuse if it were broken", () => {
    assert.strictEqual(outcome("nix-instantiate", "--parse", "-E", "{ outputs = ").status, 1)
  })
})

describe("the package", () => {
  const manifest = JSON.parse(read("package.json"))

  it("publishes the in-memory layers as nibrunner/testing", () => {
    assert.strictEqual(manifest.exports["./testing"], "./layers/testing/index.ts")
  })

  it("carries the licence that it names", () => {
    assert.strictEqual(manifest.license, "Apache-2.0")
    assert.match(read("LICENSE"), /Apache License\s+Version 2\.0/u)
  })

  it("starts each task by a set-up that knows it", () => {
    const unknown = Object.entries<string>(manifest.scripts)
      .map(([name, command]) => [name, /^node scripts\/setup\.mjs (\w+)/u.exec(command)?.[1]] as const)
      .filter(([name, task]) => name !== "prepare" && (task === undefined || !(task in tasks)))
    assert.deepStrictEqual(unknown, [])
  })
})

describe("the list of Debian packages", () => {
  it("names each package once, with the command that it brings and a reason", () => {
    const names = packages.map((p) => p.name)
    assert.deepStrictEqual(names, [...new Set(names)])
    for (const p of packages) assert.isAbove(p.why.length, 10, p.name)
  })

  it("is used as a whole: each purpose belongs to a task", () => {
    const purposes = new Set(Object.values(tasks).flat())
    assert.deepStrictEqual(
      packages.filter((p) => !purposes.has(p.for)),
      []
    )
  })
})
