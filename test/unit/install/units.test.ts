/** Units as systemd itself reads them. */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { HostFile } from "../../../src/install/generated.ts"
import { exampleUnits, hostFiles } from "../../../src/install/layout.ts"
import { UNIT_DIRECTORY } from "../../../src/install/units.ts"
import { temporaryDirectory } from "../../support/temporary.ts"
import { configOf, local, onZerofs } from "./support.ts"

/** What `systemd-analyze verify` says of the units: nothing when all is well. */
const verdict = (directory: string, units: ReadonlyArray<HostFile>): string => {
  const files = units.map(({ contents, path: file }) => {
    const at = path.join(directory, path.basename(file))
    fs.writeFileSync(at, contents)
    return at
  })
  const { error, status, stderr, stdout } = spawnSync("systemd-analyze", ["verify", "--man=no", ...files], {
    encoding: "utf8",
    env: { PATH: process.env.PATH, SYSTEMD_LOG_LEVEL: "info", SYSTEMD_UNIT_PATH: `${directory}:` }
  })
  if (error !== undefined) throw error
  // of other units of the machine nothing is to be said here
  const names = units.map(({ path: file }) => path.basename(file))
  const lines = `${stdout}${stderr}`.split("\n").filter((line) => names.some((name) => line.includes(name)))
  return [...lines, ...(status === 0 || lines.length > 0 ? [] : [`exit code ${status}`])].join("\n")
}

const unitsOf = (keys: typeof local, configFile: string, program: string) =>
  hostFiles(configOf(keys), { configFile, program, hostEnv: "" }).filter(({ path: file }) =>
    file.startsWith(UNIT_DIRECTORY)
  )

const executable = (file: string) => {
  fs.mkdirSync(path.dirname(file), { recursive: true })
  fs.writeFileSync(file, "#!/bin/sh\n", { mode: 0o755 })
  return file
}

describe("the units", () => {
  for (const [name, keys] of [
    ["files of this disk", local],
    ["ZeroFS", onZerofs]
  ] as const) {
    it.live(`are right in the eyes of systemd-analyze, with volumes on ${name}`, () =>
      Effect.gen(function* () {
        const folder = yield* temporaryDirectory
        const program = executable(path.join(folder, "bin/nibrunnerd"))
        const zerofs = executable(path.join(folder, "bin/zerofs"))
        const units = unitsOf(
          "volumes.zerofs.binary" in keys
            ? { ...keys, "volumes.zerofs.binary": JSON.stringify(zerofs) }
            : keys,
          "/etc/nibrunner/config.toml",
          program
        )
        assert.strictEqual(units.length, name === "ZeroFS" ? 3 : 1)
        assert.strictEqual(verdict(folder, units), "")
      })
    )
  }

  it.live("are right too where paths have spaces, percent signs and dollars", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryDirectory
      const odd = path.join(folder, "a b%c$d;e#f")
      const program = executable(path.join(odd, "nibrunnerd"))
      const zerofs = executable(path.join(odd, "zerofs"))
      const text = (file: string) => JSON.stringify(file)
      const units = unitsOf(
        {
          ...onZerofs,
          "volumes.zerofs.binary": text(zerofs),
          "volumes.zerofs.mount_path": text("/mnt/a b%c-d\\e"),
          "volumes.zerofs.nbd_socket_path": text("/run/z fs%/n.sock"),
          "paths.state_dir": text("/var/lib/a b%c$"),
          "paths.runtime_dir": text("/run/n b")
        },
        '/etc/a b%c$"\\/config.toml',
        program
      )
      assert.strictEqual(verdict(folder, units), "")
    })
  )

  it.live("would be found wrong if they were", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryDirectory
      const program = executable(path.join(folder, "bin/nibrunnerd"))
      const units = unitsOf(local, "/etc/nibrunner/config.toml", program)
      const broken = (from: string, to: string) =>
        verdict(
          folder,
          units.map((unit) => ({ ...unit, contents: unit.contents.replace(from, to) }))
        )
      assert.match(
        broken("Restart=always", "Restart=sometimes"),
        /Failed to parse service restart specifier/u
      )
      assert.match(broken("KillMode=", "KilMode="), /Unknown key(?: name)? 'KilMode'/u)
      assert.match(broken(program, "/no/such/program"), /is not executable/u)
    })
  )

  it.live("would wait for each other for ever if the mount came with the local filesystems", () =>
    Effect.gen(function* () {
      const folder = yield* temporaryDirectory
      const program = executable(path.join(folder, "bin/nibrunnerd"))
      const zerofs = JSON.stringify(executable(path.join(folder, "bin/zerofs")))
      const units = unitsOf(
        { ...onZerofs, "volumes.zerofs.binary": zerofs },
        "/etc/nibrunner/config.toml",
        program
      )
      const local = units.map((unit) => ({ ...unit, contents: unit.contents.replace("_netdev,", "") }))
      assert.match(verdict(folder, local), /Found dependency on mnt-zerofs\.mount/u)
    })
  )

  it("are shown as examples", () => {
    assert.deepStrictEqual(
      exampleUnits(configOf(onZerofs)).map(({ path: file }) => path.basename(file)),
      ["nibrunner-zerofs.service", "mnt-zerofs.mount", "nibrunnerd.service"]
    )
  })
})
