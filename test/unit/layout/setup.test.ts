/** The set-up, run whole, with tools of the machine replaced by ones that write down what they were asked. */
import { spawnSync } from "node:child_process"
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { delimiter, join } from "node:path"
import { afterEach, assert, beforeEach, describe, it } from "@effect/vitest"
import { packages } from "../../../scripts/packages.mjs"
import { root } from "./imports.ts"

let tools: string
let lists: string

beforeEach(() => {
  tools = mkdtempSync(join(tmpdir(), "nibrunner-setup-"))
  lists = join(tools, "lists")
  mkdirSync(lists)
  writeFileSync(join(lists, "archive_dists_bookworm_main_binary-amd64_Packages.lz4"), "")
  // whatever a test finds wrong with this checkout, it must not install packages into it
  tool("npm", "exit 1")
})
afterEach(() => rmSync(tools, { recursive: true }))

/** Puts a command before the machine's own; it writes its arguments into a log. */
const tool = (name: string, script: string) =>
  writeFileSync(join(tools, name), `#!/bin/sh\necho "$@" >>'${join(tools, name)}.log'\n${script}\n`, {
    mode: 0o755
  })

const calls = (name: string) => {
  const log = join(tools, `${name}.log`)
  return existsSync(log) ? readFileSync(log, "utf8").trim().split("\n") : []
}

const dpkgKnowing = (installed: ReadonlyArray<string>) =>
  tool("dpkg-query", installed.map((name) => `echo '${name} installed'`).join("\n"))

const setup = (task: string, uid: number) => {
  const { status, stderr } = spawnSync(process.execPath, [join(root, "scripts/setup.mjs"), task], {
    encoding: "utf8",
    env: {
      ...process.env,
      NIBRUNNER_APT_LISTS: lists,
      PATH: `${tools}${delimiter}${process.env.PATH}`,
      NODE_OPTIONS: `--import data:text/javascript,process.getuid=()=>${uid}`
    }
  })
  return { status, stderr }
}

const all = packages.map((p) => p.name)
const without = (name: string) => all.filter((other) => other !== name)

describe("the set-up", () => {
  it("refuses a task that it does not know, naming those that it does", () => {
    const { status, stderr } = setup("dmeo", 0)
    assert.strictEqual(status, 2)
    assert.match(stderr, /no task "dmeo"; there are .*demo/u)
  })

  it("touches nothing when every package is there", () => {
    dpkgKnowing(all)
    tool("apt-get", "exit 1")
    assert.deepStrictEqual(setup("demo", 0), { status: 0, stderr: "" })
    assert.deepStrictEqual(calls("apt-get"), [])
  })

  it("tells one who is not root the one command to run, and stops", () => {
    dpkgKnowing(without("mmdebstrap"))
    tool("apt-get", "exit 0")
    const { status, stderr } = setup("demo", 1000)
    assert.strictEqual(status, 1)
    assert.match(stderr, /mmdebstrap +gathers the guest's Debian base/u)
    assert.match(
      stderr,
      /sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends mmdebstrap'/u
    )
    assert.deepStrictEqual(calls("apt-get"), [])
  })

  it("installs as root what is missing, and only that", () => {
    dpkgKnowing(without("mmdebstrap"))
    tool("apt-get", "exit 0")
    assert.strictEqual(setup("demo", 0).status, 0)
    assert.deepStrictEqual(calls("apt-get"), [
      "install --simulate --no-install-recommends mmdebstrap",
      "install -q -y --no-install-recommends mmdebstrap"
    ])
  })

  it("reads the lists of apt first when apt does not know the package", () => {
    dpkgKnowing(without("mmdebstrap"))
    tool("apt-get", 'case "$*" in *--simulate*) exit 100 ;; esac')
    assert.strictEqual(setup("demo", 0).status, 0)
    assert.deepStrictEqual(calls("apt-get").slice(1), [
      "update -q",
      "install -q -y --no-install-recommends mmdebstrap"
    ])
  })

  it("stops with apt's failure", () => {
    dpkgKnowing(without("mmdebstrap"))
    tool("apt-get", 'case "$*" in *--simulate*) exit 0 ;; esac; exit 100')
    const { status, stderr } = setup("demo", 0)
    assert.strictEqual(status, 1)
    assert.match(stderr, /apt-get install .* failed with exit code 100/u)
  })

  it("asks for the packages of the task alone", () => {
    dpkgKnowing(without("wrk"))
    tool("apt-get", "exit 1")
    assert.strictEqual(setup("demo", 0).status, 0)
    assert.strictEqual(setup("bench", 0).status, 1)
  })

  it("fetches the lists of apt when it has none, since the guest image is made of them", () => {
    dpkgKnowing(all)
    rmSync(lists, { recursive: true })
    tool("apt-get", "exit 0")
    assert.strictEqual(setup("check", 0).status, 0)
    assert.deepStrictEqual(calls("apt-get"), [])
    assert.strictEqual(setup("demo", 0).status, 0)
    assert.deepStrictEqual(calls("apt-get"), ["update -q"])
  })

  it("tells one who is not root that the lists are missing", () => {
    dpkgKnowing(all)
    rmSync(lists, { recursive: true })
    tool("apt-get", "exit 0")
    const { status, stderr } = setup("demo", 1000)
    assert.strictEqual(status, 1)
    assert.match(stderr, /sudo apt-get update/u)
    assert.deepStrictEqual(calls("apt-get"), [])
  })
})
