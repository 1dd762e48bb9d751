/** The program as a process: its streams, its terminal, its signals. */
import { spawn, spawnSync } from "node:child_process"
import { once } from "node:events"
import { existsSync } from "node:fs"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { makeHost } from "./harness.ts"
import { rawInstanceReport, rawReport } from "./reports.ts"

const program = path.join(import.meta.dirname, "../../../bin/nibrunnerd.ts")
const hasTerminal = existsSync("/usr/bin/script")

/** A host with a report and a log. */
const withApp = Effect.gen(function* () {
  const host = yield* makeHost()
  const instance = rawInstanceReport("shop", { state: "failed", message: "x".repeat(300) })
  yield* host.write("state/reported.json", JSON.stringify(rawReport({ instances: [instance] })))
  const lines = Array.from({ length: 50_000 }, (_, n) => `2026-09-23T10:00:00.000Z stdout s/${n} line ${n}\n`)
  yield* host.write("state/logs/shop.log", lines.join(""))
  return host
})

type Host = Effect.Success<typeof withApp>

const environment = (host: Host, more: Record<string, string> = {}) => {
  const { NO_COLOR: _, FORCE_COLOR: __, ...inherited } = process.env
  return { ...inherited, TERM: "xterm", NIBRUNNER_CONFIG: path.join(host.folder, "config.toml"), ...more }
}

/** Runs it with pipes and more in its environment, until it ends. */
const runWith = (host: Host, more: Record<string, string>, ...args: ReadonlyArray<string>) => {
  const { status, stderr, stdout } = spawnSync(process.execPath, [program, ...args], {
    encoding: "utf8",
    env: environment(host, more)
  })
  return { status, stderr, stdout }
}

/** Runs it with pipes, until it ends. */
const run = (host: Host, ...args: ReadonlyArray<string>) => runWith(host, {}, ...args)

/** The last line of the daemon's log. */
const lastSaid = ({ stderr }: { readonly stderr: string }): string =>
  JSON.parse(stderr.trim().split("\n").at(-1) ?? "").message

/** Runs it on a terminal of so many columns: all that it writes there. */
const onTerminal = (host: Host, columns: number, command: string, more?: Record<string, string>) =>
  spawnSync(
    "script",
    ["-qec", `stty cols ${columns} rows 30; exec '${process.execPath}' '${program}' ${command}`, "/dev/null"],
    { encoding: "utf8", env: environment(host, more), input: "" }
  ).stdout

/** Starts it, waits until it has printed something, sends the signal, and gives its exit code. */
const interrupted = (host: Host, signal: NodeJS.Signals, ...args: ReadonlyArray<string>) =>
  Effect.promise(async () => {
    const child = spawn(process.execPath, [program, ...args], { env: environment(host) })
    let stderr = ""
    child.stderr.on("data", (piece: Buffer) => {
      stderr += piece.toString()
    })
    await once(child.stdout, "data")
    child.stdout.resume()
    child.kill(signal)
    const [code] = await once(child, "exit")
    return { code, stderr }
  })

describe("the program nibrunnerd", () => {
  it.live("keeps what it answers on stdout, what is wrong on stderr, and tells both by its exit code", () =>
    Effect.gen(function* () {
      const host = yield* withApp
      const bare = run(host)
      assert.deepStrictEqual([bare.status, bare.stderr], [0, ""])
      assert.include(bare.stdout, "USAGE")
      const good = run(host, "status", "--json")
      assert.strictEqual(good.status, 0)
      assert.match(good.stderr, /^no daemon runs on this host: .*\n$/u)
      assert.strictEqual(JSON.parse(good.stdout).hostId, "host-1")
      const no = run(host, "logs", "shpo")
      assert.deepStrictEqual([no.status, no.stdout], [1, ""])
      assert.strictEqual(no.stderr, 'nibrunnerd: this host knows no app "shpo". Did you mean shop?\n')
      const wrong = run(host, "status", "--nope")
      assert.deepStrictEqual([wrong.status, wrong.stdout], [2, ""])
    })
  )

  it.live("ends on one signal though it waits for a file that gives nothing", () =>
    Effect.gen(function* () {
      const host = yield* withApp
      const pipe = path.join(host.folder, "pipe")
      const ended = spawnSync(
        "bash",
        [
          "-c",
          // to open a pipe is to wait for the other end: from then on the command reads
          `mkfifo "$1"; '${process.execPath}' '${program}' check "$1" & exec 3>"$1"; kill -TERM $!; wait $!`,
          "bash",
          pipe
        ],
        { encoding: "utf8", env: environment(host), timeout: 20_000, killSignal: "SIGKILL" }
      )
      assert.include([0, 128 + 15], ended.status)
    })
  )

  it.live("says in one sentence that its output has no room", () =>
    Effect.gen(function* () {
      const host = yield* withApp
      const full = yield* Effect.acquireRelease(
        Effect.promise(() => fs.open("/dev/full", "w")),
        (file) => Effect.promise(() => file.close())
      )
      const { status, stderr } = spawnSync(process.execPath, [program, "schema", "config"], {
        encoding: "utf8",
        env: environment(host),
        stdio: ["ignore", full.fd, "pipe"]
      })
      assert.strictEqual(status, 1)
      assert.match(stderr, /^nibrunnerd: the output cannot be written: ENOSPC[^\n]*\n$/u)
    })
  )

  it.live("ends quietly when its reader has read enough", () =>
    Effect.gen(function* () {
      const host = yield* withApp
      const { status, stderr, stdout } = spawnSync(
        "bash",
        ["-o", "pipefail", "-c", `'${process.execPath}' '${program}' logs shop -n 50000 | head -n 1`],
        { encoding: "utf8", env: environment(host) }
      )
      assert.deepStrictEqual([status, stderr], [0, ""])
      assert.include(stdout, "line 0")
    })
  )

  for (const args of [
    ["logs", "shop", "-f"],
    ["status", "--watch"]
  ])
    it.live(`ends ${args.join(" ")} with 0 on Ctrl-C`, () =>
      Effect.gen(function* () {
        const host = yield* withApp
        assert.deepStrictEqual(yield* interrupted(host, "SIGINT", ...args), { code: 0, stderr: "" })
      })
    )

  it.live("says why a daemon cannot start in its log, one JSON object without a stack", () =>
    Effect.gen(function* () {
      const host = yield* withApp
      yield* Effect.promise(() => fs.rm(path.join(host.folder, "config.toml")))
      const { status, stderr, stdout } = run(host, "daemon")
      assert.deepStrictEqual([status, stdout], [1, ""])
      const said = JSON.parse(stderr)
      assert.deepStrictEqual(Object.keys(said), ["time", "level", "message"])
      assert.strictEqual(said.level, "fatal")
      assert.match(said.message, /^the daemon ends: the configuration .* there is no such file/u)
    })
  )

  it.live(
    "refuses to run a host whose configuration needs a variable that is not set or empty, by name",
    () =>
      Effect.gen(function* () {
        const host = yield* makeHost({ "artifacts.store_url": '"s3://bucket"' })
        const given = { AWS_REGION: "eu-central-1", AWS_ACCESS_KEY_ID: "", AWS_SECRET_ACCESS_KEY: " " }
        const refused = runWith(host, given, "daemon")
        assert.strictEqual(refused.status, 1)
        const file = path.join(host.folder, "host.env")
        assert.strictEqual(
          lastSaid(refused),
          `the daemon ends: not set or empty: AWS_ACCESS_KEY_ID (needed because artifacts.store_url is an s3:// address), AWS_SECRET_ACCESS_KEY (needed because artifacts.store_url is an s3:// address): set them in ${file} and start the daemon again`
        )
        assert.isFalse(existsSync(host.stateDir))

        yield* host.write("host.env", "AWS_ACCESS_KEY_ID=AKIA\nAWS_SECRET_ACCESS_KEY=hunter2\n")
        const notGiven = runWith(host, given, "daemon")
        assert.match(
          lastSaid(notGiven),
          /set in .*\/host\.env, but not in the daemon's environment: AWS_ACCESS/u
        )
        assert.notInclude(notGiven.stderr, "hunter2")

        const complete = { ...given, AWS_ACCESS_KEY_ID: "AKIA", AWS_SECRET_ACCESS_KEY: "hunter2" }
        const next = runWith(host, complete, "daemon")
        assert.notInclude(lastSaid(next), "AWS_")
        assert.notInclude(next.stderr, "hunter2")
      })
  )

  it.live.skipIf(!hasTerminal)("is coloured and cut on a terminal, and keeps NO_COLOR", () =>
    Effect.gen(function* () {
      const host = yield* withApp
      const coloured = onTerminal(host, 70, "status")
      assert.include(coloured, "\x1b[31mfailed\x1b[0m")
      const plain = onTerminal(host, 70, "status", { NO_COLOR: "1" })
      assert.notInclude(plain, "\x1b")
      const lines = plain.split("\n").map((line) => line.trimEnd())
      assert.isAtMost(Math.max(...lines.map((line) => line.length)), 70)
      assert.match(plain, /^shop .*x…\r?$/mu)
      assert.notInclude(run(host, "status").stdout, "\x1b")
    })
  )
})
