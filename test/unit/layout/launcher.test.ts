/** bin/nibrunnerd, on a project of its own that holds the launcher, the bundler and one small program. */
import { execFile, spawnSync } from "node:child_process"
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterEach, assert, beforeEach, describe, it } from "@effect/vitest"
import { root } from "./imports.ts"

let project: string
let launcher: string

const program = (word: string) =>
  writeFileSync(
    join(project, "bin/nibrunnerd.ts"),
    `import { name } from "../src/name.ts"\nconsole.log("${word}", name, ...process.argv.slice(2))\n`
  )

const bundleTime = () => statSync(join(project, "dist/nibrunnerd.mjs")).mtimeMs

const launch = (path = launcher, args: ReadonlyArray<string> = [], cwd = tmpdir()) => {
  const { status, stdout, stderr } = spawnSync(path, args, { cwd, encoding: "utf8" })
  return { status, stdout: stdout.trim(), stderr: stderr.trim() }
}

beforeEach(() => {
  project = mkdtempSync(join(tmpdir(), "nibrunner launcher-"))
  launcher = join(project, "bin/nibrunnerd")
  for (const folder of ["bin", "src", "layers", "scripts"]) mkdirSync(join(project, folder))
  for (const file of [
    "bin/nibrunnerd",
    "layers/store/s3/sdk.ts",
    "scripts/bundle.ts",
    "rolldown.config.ts",
    "package.json",
    "package-lock.json"
  ]) {
    cpSync(join(root, file), join(project, file))
  }
  symlinkSync(join(root, "node_modules"), join(project, "node_modules"))
  writeFileSync(join(project, "src/name.ts"), 'export const name: string = "first"\n')
  program("hello")
})
afterEach(() => rmSync(project, { recursive: true }))

describe("the launcher", () => {
  it("makes the bundle at first, and hands the arguments over as they are", () => {
    assert.deepStrictEqual(launch(launcher, ["a b", "$c"]), {
      status: 0,
      stdout: "hello first a b $c",
      stderr: ""
    })
  })

  it("works from any folder, by a relative path and through links", () => {
    assert.strictEqual(launch("bin/nibrunnerd", [], project).stdout, "hello first")
    assert.strictEqual(launch("./nibrunnerd", [], join(project, "bin")).stdout, "hello first")
    symlinkSync("bin/nibrunnerd", join(project, "one"))
    symlinkSync(join(project, "one"), join(project, "two"))
    assert.strictEqual(launch(join(project, "two")).stdout, "hello first")
  })

  it("gives the daemon little room for what is soon forgotten, and a command much", () => {
    writeFileSync(
      join(project, "bin/nibrunnerd.ts"),
      "console.log(process.execArgv.join(), process.env.MALLOC_MMAP_THRESHOLD_, process.env.MALLOC_ARENA_MAX)\n"
    )
    assert.strictEqual(launch(launcher, ["daemon"]).stdout, "--max-semi-space-size=16 1048576 2")
    assert.strictEqual(
      launch(launcher, ["check", "daemon"]).stdout,
      "--min-semi-space-size=48,--max-semi-space-size=48 undefined undefined"
    )
  })

  it("leaves the bundle alone while no source is newer", () => {
    launch()
    const before = bundleTime()
    launch()
    assert.strictEqual(bundleTime(), before)
  })

  it("makes it again when a source was changed, added or renamed", () => {
    launch()
    writeFileSync(join(project, "src/name.ts"), 'export const name: string = "second"\n')
    assert.strictEqual(launch().stdout, "hello second")
    const changed = bundleTime()
    writeFileSync(join(project, "layers/new.ts"), "export {}\n")
    launch()
    assert.isAbove(bundleTime(), changed)
    const added = bundleTime()
    rmSync(join(project, "layers/new.ts"))
    launch()
    assert.isAbove(bundleTime(), added)
  })

  it("puts what works on a host into a file of its own, which is loaded when it is needed", () => {
    mkdirSync(join(project, "src/host"))
    writeFileSync(join(project, "src/host/run.ts"), 'export const run = (): string => "works on a host"\n')
    writeFileSync(
      join(project, "bin/nibrunnerd.ts"),
      'if (process.argv[2] === "run") console.log((await import("../src/host/run.ts")).run())\n'
    )
    assert.strictEqual(launch(launcher, ["run"]).stdout, "works on a host")
    rmSync(join(project, "dist/nibrunnerd-host.mjs"))
    assert.strictEqual(launch(launcher, ["other"]).status, 0)
    assert.notStrictEqual(launch(launcher, ["run"]).status, 0)
  })

  it("says so when a source cannot be bundled, and starts nothing old", () => {
    launch()
    program('hello", (')
    const { status, stdout, stderr } = launch()
    assert.strictEqual(status, 1)
    assert.strictEqual(stdout, "")
    assert.match(stderr, /nibrunnerd\.mjs is older than its sources and could not be made again/u)
  })

  it("started many times at once makes one whole bundle", async () => {
    const starts = await Promise.all(Array.from({ length: 6 }, () => promisify(execFile)(launcher)))
    assert.deepStrictEqual(
      starts.map(({ stdout }) => stdout.trim()),
      Array.from({ length: 6 }, () => "hello first")
    )
    assert.deepStrictEqual(readdirSync(join(project, "dist")).sort(), [
      ".lock",
      "compile-cache",
      "nibrunnerd-s3.mjs",
      "nibrunnerd.mjs"
    ])
  })

  it("names the command that brings the dependencies when they are missing", () => {
    rmSync(join(project, "node_modules"))
    const { status, stderr } = launch()
    assert.strictEqual(status, 1)
    assert.match(stderr, /npm ci --prefix/u)
  })

  it("runs what was installed without its sources", () => {
    launch()
    for (const folder of ["src", "layers", "scripts"]) rmSync(join(project, folder), { recursive: true })
    assert.strictEqual(launch().stdout, "hello first")
  })
})
