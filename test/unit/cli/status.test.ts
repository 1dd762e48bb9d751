import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { CliOutput } from "effect/cli"
import { TestClock, TestConsole } from "effect/testing"
import fc from "fast-check"
import { cut } from "../../../src/cli/table.ts"
import { HostId } from "../../../src/document/schema.ts"
import { instance as decodedInstance, rawDocument, rawInstance, rawVolume } from "../reconcile/documents.ts"
import { makeHost } from "./harness.ts"
import { rawInstanceReport, rawReport } from "./reports.ts"

type Host = Effect.Success<ReturnType<typeof makeHost>>

const MIB = 2 ** 20
const REPORT = "state/reported.json"

const reporting = Effect.fnUntraced(function* (report: unknown) {
  const host = yield* makeHost()
  yield* host.write(REPORT, `${JSON.stringify(report)}\n`)
  return host
})

/** Replaces the report as the daemon does. */
const replace = Effect.fnUntraced(function* (host: Host, report: unknown) {
  const next = yield* host.write(`${REPORT}.next`, `${JSON.stringify(report)}\n`)
  yield* Effect.promise(() => fs.rename(next, path.join(host.folder, REPORT)))
})

const two = rawReport({
  instances: [
    rawInstanceReport("shop", {
      startedAt: "1969-12-31T22:55:00.000Z",
      compute: {
        memoryTotalBytes: 256 * MIB,
        memoryUsedBytes: 100 * MIB,
        measuredAt: "1970-01-01T00:00:00.000Z"
      }
    }),
    rawInstanceReport("wiki", {
      state: "failed",
      restartCount: 3,
      startedAt: undefined,
      message: "the program /app/server is not there"
    })
  ]
})

const accept = (host: Host, document: unknown) =>
  host.note((state) =>
    state.accept({ hostId: HostId.make("host-1"), digest: "d".repeat(64), text: JSON.stringify(document) })
  )

const widest = (text: string) => Math.max(...text.split("\n").map(CliOutput.displayWidth))

describe("nibrunnerd status", () => {
  it.effect("shows each app in a line: state, since, memory, restarts, hostnames and message", () =>
    Effect.gen(function* () {
      const host = yield* reporting(two)
      yield* accept(host, rawDocument({ volumes: [rawVolume("shop")], instances: [rawInstance("shop")] }))
      yield* host.daemonRuns
      const { code, err, out } = yield* host.run("status")
      assert.strictEqual(code, 0)
      assert.strictEqual(err, "")
      assert.strictEqual(
        out,
        [
          "host host-1 is ready; 2 apps: 1 running, 1 failed; reported 0s ago",
          "",
          "APP   STATE    SINCE   MEMORY  RESTARTS  HOSTNAMES         MESSAGE",
          "shop  running  1h 5m  100 MiB         0  shop.example.com",
          "wiki  failed   -            -         3  -                 the program /app/server is not there"
        ].join("\n")
      )
    })
  )

  it.effect("shows where raw ports are reached, as those that are up were booted with them", () =>
    Effect.gen(function* () {
      const ports = (...guestPorts: ReadonlyArray<number>) => ({
        config: { ports: guestPorts.map((guestPort) => ({ name: `p-${guestPort}`, guestPort })) }
      })
      const apps = ["game", "db", "later", "plain"]
      const host = yield* reporting(
        rawReport({
          instances: [
            rawInstanceReport("game", { hostPort: 21_008 }),
            rawInstanceReport("db", { hostPort: 21_016 }),
            rawInstanceReport("later", { state: "pending" }),
            rawInstanceReport("plain", { hostPort: 21_032 })
          ]
        })
      )
      yield* accept(
        host,
        rawDocument({
          volumes: apps.map((app) => rawVolume(app)),
          instances: [
            rawInstance("game", ports(25_565, 25_575)),
            rawInstance("db", ports(9999)),
            rawInstance("later", ports(1)),
            rawInstance("plain")
          ]
        })
      )
      const booted = decodedInstance("db", ports(5432))
      const machine = yield* host.machine(booted.appId, 2)
      const record = { appId: booted.appId, slot: 2, instance: booted, attempts: 1, restartCount: 0 }
      yield* host.note((state) => state.saveApp({ ...record, machine }))
      const shown = (columns?: number) =>
        columns === undefined ? host.run("status") : host.runOn({ size: { columns, rows: 50 } }, "status")
      const columnOf = (out: string) => {
        const lines = out.split("\n").slice(3)
        const [from, to] = [lines[0]?.indexOf("PORTS") ?? 0, lines[0]?.indexOf("MESSAGE") ?? 0]
        return lines.slice(1).map((line) => line.slice(from, to).trim())
      }
      assert.deepStrictEqual(columnOf((yield* shown()).out), [
        "21009→25565 21010→25575",
        "21017→5432",
        "-",
        "-"
      ])
      assert.match(columnOf((yield* shown(84)).out)[0] ?? "", /^21009→25565 210\S*…$/u)
      for (let columns = 120; columns > 0; columns -= 3) {
        const { out } = yield* shown(columns)
        assert.isAtMost(widest(out), columns, out)
      }
    })
  )

  it.effect("needs no notes: without them it shows no hostnames", () =>
    Effect.gen(function* () {
      const host = yield* reporting(two)
      const { code, out } = yield* host.run("status")
      assert.strictEqual(code, 0)
      assert.match(out, /^shop +running .* -$/mu)
    })
  )

  it.effect("prints the report itself with --json, on one line", () =>
    Effect.gen(function* () {
      const host = yield* reporting(two)
      yield* host.daemonRuns
      const { code, err, out } = yield* host.run("status", "--json")
      assert.deepStrictEqual([code, err], [0, ""])
      assert.strictEqual(out, JSON.stringify(two))
    })
  )

  it.effect("exits with 1 and one sentence when there is no report, or none that it can read", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      for (const args of [["status"], ["status", "--json"], ["status", "--watch"]]) {
        const { code, err, out } = yield* host.run(...args)
        assert.strictEqual(code, 1)
        assert.strictEqual(out, "")
        assert.match(
          err,
          /^nibrunnerd: the report .*reported\.json cannot be read: there is no such file, and no daemon runs on this host$/u
        )
      }
      for (const text of ["{", "[]", '{"hostId":"h"}', ""]) {
        yield* host.write(REPORT, text)
        const { code, err } = yield* host.run("status")
        assert.strictEqual(code, 1)
        assert.match(err, /^nibrunnerd: the report .* cannot be read: it is (not JSON|none that)/u)
        assert.lengthOf(err.split("\n"), 1)
      }
    })
  )

  it.effect(
    "says that no daemon runs, as text and beside the report as JSON, and says it no more once one does",
    () =>
      Effect.gen(function* () {
        const sentence =
          "no daemon runs on this host: this is what the last one reported. The microVMs go on without it"
        const host = yield* reporting(two)
        const [head, said] = (yield* host.run("status")).out.split("\n")
        assert.match(head ?? "", /^host host-1 is ready/u)
        assert.strictEqual(said, sentence)
        const json = yield* host.run("status", "--json")
        assert.deepStrictEqual([json.code, json.out, json.err], [0, JSON.stringify(two), sentence])
        yield* host.daemonRuns
        assert.notInclude((yield* host.run("status")).out, "no daemon runs")
        yield* Effect.promise(() => fs.rm(path.join(host.folder, REPORT)))
        assert.match((yield* host.run("status")).err, /there is no such file yet\. The daemon runs/u)
      })
  )

  it.effect("says of an app that has failed when it is started again, or that no start is due", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const apps = ["later", "now", "spent", "fine"]
      const document = rawDocument({
        volumes: apps.map((app) => rawVolume(app)),
        instances: apps.map((app) => rawInstance(app))
      })
      const instances = apps.map((app) => decodedInstance(app))
      yield* accept(host, document)
      yield* host.note((state) =>
        Effect.forEach(instances, (instance, slot) =>
          Effect.gen(function* () {
            const { appId, deploymentId, volumeId } = instance
            yield* state.saveVolume({ volumeId, appId, sizeBytes: 67_108_864, state: "ready" })
            if (appId === "fine") return
            yield* state.saveApp({
              appId,
              slot,
              instance,
              attempts: appId === "spent" ? instance.config.restartPolicy.maxRestarts + 1 : 1,
              restartCount: 0,
              failure: { reason: "it exited", at: appId === "later" ? 99_500 : 0, deploymentId }
            })
          })
        )
      )
      yield* host.write(
        REPORT,
        JSON.stringify(
          rawReport({
            instances: apps.map((app) =>
              rawInstanceReport(app, {
                state: app === "fine" ? "running" : "failed",
                message: app === "fine" ? undefined : "it exited"
              })
            )
          })
        )
      )
      yield* TestClock.setTime(100_000)
      const ended = yield* host.run("status")
      assert.match(ended.out, /^later +failed .* it exited$/mu)
      yield* host.daemonRuns
      const { out } = yield* host.run("status")
      assert.match(out, /^later +failed .* it exited \(starts again in \d+s\)$/mu)
      assert.match(out, /^now +failed .* it exited \(starts again now\)$/mu)
      assert.match(out, /^spent +failed .* it exited \(no start is due\)$/mu)
      assert.notMatch(out, /^fine .*start/mu)
    })
  )

  it.effect("says why the last document was refused, and that a report is old", () =>
    Effect.gen(function* () {
      const host = yield* reporting(rawReport({ message: "desired.json is refused: it is not JSON" }))
      yield* host.daemonRuns
      yield* TestClock.setTime(200_000)
      const { out } = yield* host.run("status")
      assert.deepStrictEqual(out.split("\n"), [
        "host host-1 is ready; no apps; reported 3m 20s ago",
        "the report is old: the daemon runs, but has not reported since",
        "desired.json is refused: it is not JSON"
      ])
    })
  )

  it.effect("shows volumes, checkpoints and exports when something is to be said of them", () =>
    Effect.gen(function* () {
      const volume = (volumeId: string, state: string, message?: string) => ({
        volumeId,
        appId: "shop",
        state,
        sizeBytes: 1,
        message
      })
      const host = yield* reporting(
        rawReport({
          volumes: [
            volume("fine", "ready"),
            volume("broken", "failed", "the disk is full"),
            volume("old", "detached")
          ],
          exports: [{ exportId: "backup", state: "preparing" }]
        })
      )
      yield* host.daemonRuns
      const { out } = yield* host.run("status")
      assert.deepStrictEqual(out.split("\n").slice(2), [
        "KIND    ID      STATE      MESSAGE",
        "volume  broken  failed     the disk is full",
        "volume  old     detached   kept: the document does not name it. Named once as absent, it is deleted",
        "export  backup  preparing"
      ])
    })
  )

  it.effect("colours states on a terminal, and nothing elsewhere", () =>
    Effect.gen(function* () {
      const host = yield* reporting(two)
      const size = { columns: 200, rows: 50 }
      const onTerminal = yield* host.runOn({ colours: true, size }, "status")
      assert.include(onTerminal.out, "\x1b[32mrunning\x1b[0m")
      assert.include(onTerminal.out, "\x1b[31mfailed \x1b[0m")
      const withoutColours = yield* host.runOn({ size }, "status")
      assert.notInclude(withoutColours.out, "\x1b")
      assert.notInclude((yield* host.run("status")).out, "\x1b")
    })
  )

  it.effect("keeps to the width of the terminal: hostnames are cut first, then messages", () =>
    Effect.gen(function* () {
      const message = "der Träger 🦄 ist weg, und 日本語 steht hier, bis die Zeile voll ist"
      const host = yield* reporting(
        rawReport({
          message: `${"x".repeat(300)}`,
          instances: [rawInstanceReport("shop", { message })]
        })
      )
      yield* accept(
        host,
        rawDocument({
          volumes: [rawVolume("shop")],
          instances: [
            rawInstance("shop", {
              hostnames: ["a", "b", "c"].map((name) => ({
                hostname: `${name}.shop.example.com`,
                kind: "platform" as const
              }))
            })
          ]
        })
      )
      const wide = yield* host.run("status")
      assert.include(wide.out, `a.shop.example.com b.shop.example.com c.shop.example.com  ${message}`)
      const at = (columns: number) =>
        Effect.map(host.runOn({ size: { columns, rows: 50 } }, "status"), ({ out }) => out)
      // Only hostnames have to give way.
      assert.include(yield* at(130), message)
      assert.match(yield* at(130), / a\.shop\.[a-z. ]*… {2}der Träger/u)
      for (let columns = 140; columns > 0; columns -= 3) {
        const out = yield* at(columns)
        assert.isAtMost(widest(out), columns, out)
        assert.isTrue(out.isWellFormed())
      }
    })
  )

  it.effect("lets no guest steer the terminal, in words or as JSON", () =>
    Effect.gen(function* () {
      const message = "\u001b[2J\u0007\u009b31m\u202e\u2066evil\r\nshop running\tx"
      const host = yield* reporting(
        rawReport({ message, instances: [rawInstanceReport("shop", { state: "failed", message })] })
      )
      yield* host.daemonRuns
      const shown = yield* host.run("status")
      assert.notMatch(shown.out, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/u)
      assert.lengthOf(shown.out.split("\n"), 5)
      const json = yield* host.run("status", "--json")
      assert.notMatch(json.out, /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/u)
      assert.strictEqual(JSON.parse(json.out).message, message)
    })
  )
})

describe("nibrunnerd status --watch", () => {
  const size = { columns: 100, rows: 20 }

  it.effect("draws anew each second and whenever the report changes, and leaves the terminal as it was", () =>
    Effect.gen(function* () {
      const host = yield* reporting(rawReport({ instances: [rawInstanceReport("shop")] }))
      const watching = yield* Effect.forkChild(host.runOn({ size }, "status", "--watch"), {
        startImmediately: true
      })
      const until = Effect.fnUntraced(function* (what: string) {
        for (let looks = 0; looks < 400; looks++) {
          if (host.drawn.at(-1)?.includes(what)) return
          // What is read is read from a real disk, between two looks by the test's clock.
          yield* Effect.yieldNow.pipe(Effect.andThen(Effect.promise(() => fs.stat(host.folder))))
          if (looks % 4 === 3) yield* TestClock.adjust(50)
        }
        assert.fail(`never drawn: ${what}\n${host.drawn.at(-1)}`)
      })
      yield* until("shop  running  0s")
      assert.strictEqual(host.drawn[0], "\x1b[?1049h\x1b[?25l")
      yield* until("shop  running  1s")
      yield* until("shop  running  2s")
      yield* replace(host, rawReport({ instances: [rawInstanceReport("shop", { state: "failed" })] }))
      yield* until("shop  failed")
      yield* Effect.promise(() => fs.rm(path.join(host.folder, REPORT)))
      yield* until("there is no such file")
      assert.include(host.drawn.at(-1) ?? "", "shop  failed")
      yield* replace(host, rawReport())
      yield* until("no apps")
      yield* Fiber.interrupt(watching)
      assert.strictEqual(host.drawn.at(-1), "\x1b[?25h\x1b[?1049l")
    })
  )

  it.effect("draws no more lines than the terminal has", () =>
    Effect.gen(function* () {
      const instances = Array.from({ length: 100 }, (_, n) => rawInstanceReport(`app-${n}`))
      const host = yield* reporting(rawReport({ instances }))
      yield* host.daemonRuns
      const watching = yield* Effect.forkChild(host.runOn({ size }, "status", "--watch"), {
        startImmediately: true
      })
      while (host.drawn.length < 2) yield* Effect.promise(() => fs.stat(host.folder))
      yield* Fiber.interrupt(watching)
      const lines = host.drawn[1]?.split("\n") ?? []
      assert.lengthOf(lines, size.rows)
      assert.include(lines.at(-2), "… 85 more lines")
    })
  )

  it.effect("prints one report a line with --json, each when it is new", () =>
    Effect.gen(function* () {
      const host = yield* reporting(rawReport())
      const watching = yield* Effect.forkChild(host.run("status", "--watch", "--json"), {
        startImmediately: true
      })
      const lines = Effect.fnUntraced(function* (count: number) {
        for (;;) {
          const all = yield* TestConsole.logLines
          if (all.length >= count) return all.map((line) => JSON.parse(String(line)).hostId)
          yield* Effect.promise(() => fs.stat(host.folder))
          yield* TestClock.adjust(50)
        }
      })
      assert.deepStrictEqual(yield* lines(1), ["host-1"])
      yield* replace(host, rawReport({ hostId: "host-2" }))
      assert.deepStrictEqual(yield* lines(2), ["host-1", "host-2"])
      yield* Fiber.interrupt(watching)
    })
  )
})

describe("a text that is cut", () => {
  it("is as wide as it may be, and is cut between characters", () => {
    const text = fc.string({ unit: "grapheme", maxLength: 40 })
    fc.assert(
      fc.property(text, fc.nat(45), (whole, width) => {
        const short = cut(whole, width)
        assert.isAtMost(CliOutput.displayWidth(short), width)
        assert.isTrue(short.isWellFormed())
        if (CliOutput.displayWidth(whole) <= width) assert.strictEqual(short, whole)
        else if (width > 0) {
          assert.isTrue(short.endsWith("…"))
          assert.isTrue(whole.startsWith(short.slice(0, -1)))
        }
      })
    )
  })
})
