/** What holds for every command: help, usage, exit codes, errors. */
import { spawnSync } from "node:child_process"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { makeHost } from "./harness.ts"

const commands = ["daemon", "check", "plan", "status", "logs", "schema"]

/** Commands that read the host's configuration, with words that are right. */
const onHost = [["plan", "next.json"], ["status"], ["status", "--watch"], ["logs", "shop"]]

describe("nibrunnerd", () => {
  it.effect("without a command prints its help and exits with 0", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const bare = yield* host.run()
      assert.strictEqual(bare.code, 0)
      assert.strictEqual(bare.err, "")
      for (const command of commands) assert.match(bare.out, new RegExp(`^  ${command} +[A-Z]`, "mu"))
      assert.strictEqual((yield* host.run("--help")).out, bare.out)
    })
  )

  for (const command of commands)
    it.effect(`${command} --help teaches, with an example that can be typed`, () =>
      Effect.gen(function* () {
        const host = yield* makeHost()
        const { code, err, out } = yield* host.run(command, "--help")
        assert.deepStrictEqual([code, err], [0, ""])
        assert.include(out, `USAGE\n  nibrunnerd ${command}`)
        if (command === "schema") return
        assert.match(out, new RegExp(`EXAMPLES\\n  # .+\\n  .*nibrunnerd ${command}`, "u"))
      })
    )

  it.effect("tells a call that is wrong in sentences on stderr, prints nothing on stdout, exits with 2", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const wrong: ReadonlyArray<readonly [ReadonlyArray<string>, string]> = [
        [["stats"], "Did you mean this? status"],
        [["status", "--jsno"], "Did you mean this? --json"],
        [["plan"], "Missing required argument: FILE"],
        [["plan", "a.json", "b.json"], 'Unexpected positional argument: "b.json"'],
        [["logs"], "Missing required argument: APP"],
        [["logs", "a", "b"], 'Unexpected positional argument: "b"'],
        [["schema", "host"], '"host"'],
        [["check"], "FILE"]
      ]
      for (const [args, sentence] of wrong) {
        const { code, err, out } = yield* host.run(...args)
        const called =
          args.length > 0 && commands.includes(args[0] ?? "") ? `nibrunnerd ${args[0]}` : "nibrunnerd"
        assert.strictEqual(code, 2, args.join(" "))
        assert.strictEqual(out, "")
        assert.include(err, sentence)
        assert.strictEqual(err.split("\n").at(-1), `${called} --help says how it is used`)
      }
    })
  )

  it.effect("says in one sentence what is wrong with the configuration, and exits with 1", () =>
    Effect.gen(function* () {
      const host = yield* makeHost({ max_apps: "0", "metrics.port": '"x"' })
      yield* host.write("next.json", "{}")
      const file = path.join(host.folder, "config.toml")
      for (const args of onHost) {
        const { code, err, out } = yield* host.run(...args)
        assert.deepStrictEqual([code, out], [1, ""], args.join(" "))
        assert.match(
          err,
          /^nibrunnerd: the configuration is refused: .*config\.toml:\d+:\d+: .*, and \d+ more problems?\. nibrunnerd check .*config\.toml shows them all$/u
        )
      }
      yield* Effect.promise(() => fs.rm(file))
      for (const args of onHost) {
        const { code, err, out } = yield* host.run(...args)
        assert.deepStrictEqual([code, out], [1, ""], args.join(" "))
        assert.strictEqual(
          err,
          `nibrunnerd: the configuration ${file} cannot be read: there is no such file. NIBRUNNER_CONFIG names another file`
        )
      }
    })
  )

  it.effect("says in one sentence that the host's notes are those of another version", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      yield* host.write("state/state/state.db", "this is no database, whatever it is called")
      const file = yield* host.write(
        "next.json",
        JSON.stringify({ hostId: "h", volumes: [], instances: [], checkpoints: [], exports: [] })
      )
      const { code, err, out } = yield* host.run("plan", file)
      assert.deepStrictEqual([code, out], [1, ""])
      assert.match(err, /^nibrunnerd: the host's notes cannot be used \(open\): .*not a database$/u)
    })
  )

  for (const shell of ["bash", "zsh", "fish"])
    it.effect(`prints completions for ${shell} that name every command and flag`, () =>
      Effect.gen(function* () {
        const host = yield* makeHost()
        const { code, out } = yield* host.run("--completions", shell)
        assert.strictEqual(code, 0)
        for (const word of [...commands, "follow", "lines", "watch", "json"]) assert.include(out, word)
        if (shell !== "bash") return
        const { status, stderr } = spawnSync("bash", ["-n"], { input: out, encoding: "utf8" })
        assert.deepStrictEqual([status, stderr], [0, ""])
      })
    )
})
