/** The demo as a user runs it, on a real microVM, with a folder of its own. */
import { spawn } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"

const root = join(import.meta.dirname, "../..")
let folder: string

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "nibrunner-demo-"))
})
afterAll(() => rmSync(folder, { recursive: true }))

/** Runs the demo; `onOutput` sees all of its output after each piece, and may signal it. */
const demo = (
  args: ReadonlyArray<string>,
  onOutput: (output: string, signal: (name: NodeJS.Signals) => void) => void = () => {}
) =>
  new Promise<{ readonly code: number | null; readonly output: string }>((resolve, reject) => {
    const child = spawn(process.execPath, [join(root, "scripts/demo.ts"), "--folder", folder, ...args], {
      stdio: ["ignore", "pipe", "pipe"]
    })
    let output = ""
    const take = (chunk: Buffer) => {
      output += chunk.toString("utf8")
      onOutput(output, (name) => child.kill(name))
    }
    child.stdout.on("data", take)
    child.stderr.on("data", take)
    child.once("error", reject)
    child.once("close", (code) => resolve({ code, output }))
  })

/** Processes that have the demo's folder in their command line. */
const leftovers = () =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/u.test(name))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(folder)
      } catch {
        return false // it ended while we looked
      }
    })

const visits = (output: string) => Number(/This is visit (\d+) to hello\.localhost/u.exec(output)?.[1])

describe("the demo", () => {
  it("deploys the example, shows its page, stops it and ends with 0", async () => {
    const { code, output } = await demo(["--once"])
    assert.strictEqual(code, 0, output)
    for (const step of [
      "image",
      "example",
      "daemon",
      "document",
      "volume",
      "boot",
      "health",
      "answer",
      "sleep",
      "wake",
      "stop"
    ]) {
      assert.match(output, new RegExp(`✔ ${step} +\\d+\\.\\d s`, "u"))
    }
    assert.match(output, /curl -H 'Host: hello\.localhost' http:\/\/127\.0\.0\.1:\d+\//u)
    assert.strictEqual(visits(output), 1)
    assert.match(output, /asleep in \d+ ms: [1-9]\d* MiB of memory are now 0, and [1-9]\d* MiB on the disk/u)
    assert.match(output, /This is visit 2 to hello\.localhost, and number 2 since the program started/u)
    assert.deepStrictEqual(leftovers(), [])
  })

  it("keeps the app's volume from run to run, and Ctrl-C ends it cleanly", async () => {
    let signalled = false
    const { code, output } = await demo([], (sofar, signal) => {
      if (signalled || !sofar.includes("Ctrl-C ends it")) return
      signalled = true
      // twice, as a terminal and npm send it both
      signal("SIGINT")
      signal("SIGINT")
    })
    assert.strictEqual(code, 0, output)
    assert.strictEqual(visits(output), 3)
    assert.match(output, /✔ stop/u)
    assert.deepStrictEqual(leftovers(), [])
  })

  it("ends with 1 and the reason when the host cannot be started", async () => {
    const belowFile = join(folder, "config.toml", "host")
    const { code, output } = await demo(["--once", "--folder", belowFile])
    assert.strictEqual(code, 1, output)
    assert.include(output, `error: the host's folder ${belowFile} cannot be laid out: ENOTDIR`)
  })

  it("says how it is used when it is told something else", async () => {
    const { code, output } = await demo(["--onec"])
    assert.strictEqual(code, 2)
    assert.match(output, /--onec[\s\S]*usage: npm run demo/u)
  })
})
