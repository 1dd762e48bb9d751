/** What the report and the log say of the host as a whole. */
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { removeDocument } from "../../../layers/testing/DocumentSource.ts"
import { MAX_MESSAGE } from "../../../src/report/schema.ts"
import { HostDirectories, type OwnDirectory } from "../../../src/services/HostDirectories.ts"
import { ReportError } from "../../../src/services/Reporter.ts"
import { recordedLog } from "../../support/log.ts"
import { makeHost } from "./harness.ts"

describe("a directory that is taken from under the daemon", () => {
  const state: OwnDirectory = { key: "paths.state_dir", path: "/var/lib/nibrunner" }
  const run: OwnDirectory = { key: "paths.runtime_dir", path: "/run/nibrunner" }

  it.effect("is told in the report within a minute, and once in the log, until it is there again", () =>
    Effect.gen(function* () {
      const { layer, lines } = recordedLog()
      let lost: ReadonlyArray<OwnDirectory> = []
      const host = yield* makeHost()
      yield* host
        .start()
        .pipe(
          Effect.provideService(HostDirectories, { lost: Effect.sync(() => lost) }),
          Effect.provide(layer)
        )
      yield* host.run("app-1")
      const says = () => host.report()?.message ?? ""
      const said = (start: string) => lines.filter((line) => line.startsWith(`Error ${start}`)).length
      lost = [run]
      yield* host.until("it is told", () => says() !== "", 61_000)
      assert.match(
        says(),
        /^\/run\/nibrunner \(paths\.runtime_dir\) was removed, moved away or covered while the daemon runs: .*Move it back/u
      )
      assert.strictEqual(host.instanceOf("app-1")?.state, "running")
      lost = [state, run]
      yield* host.until("both are told", () => says().startsWith("/var/lib/nibrunner (paths.state_dir) was"))
      assert.isAtMost(says().length, MAX_MESSAGE)
      yield* TestClock.adjust("5 minutes")
      assert.deepStrictEqual([said(state.path), said(run.path)], [1, 1])
      lost = []
      yield* host.until("nothing is told", () => host.report()?.message === null, 61_000)
      assert.include(lines, "Info the directories of the host are again those that the daemon began with")
      lost = [state]
      yield* removeDocument(host.source)
      yield* host.until("it is told with what else is wrong", () =>
        /^\/var\/lib\/nibrunner .*; \/memory\/desired\.json is gone/u.test(says())
      )
      assert.strictEqual(said(state.path), 2)
    })
  )
})

describe("a report that cannot be written", () => {
  it.effect("is said once, and that it is written again", () =>
    Effect.gen(function* () {
      const { layer, lines } = recordedLog()
      const host = yield* makeHost()
      const sentence = "the report /state/reported.json cannot be written: the disk is full"
      yield* host.start().pipe(Effect.provide(layer))
      yield* host.run("app-1")
      host.reporter.script.fail(
        "write",
        new ReportError({ path: "/state/reported.json", reason: "the disk is full" })
      )
      yield* TestClock.adjust("5 minutes")
      assert.isAtLeast(host.reporter.script.count("write"), 5)
      assert.lengthOf(
        lines.filter((line) => line === `Error ${sentence}`),
        1
      )
      host.reporter.script.clear()
      yield* host.until("it is said", () => lines.includes("Info the report is written again"), 61_000)
    })
  )
})
