import { execFileSync } from "node:child_process"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { DatabaseSync } from "node:sqlite"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Scope } from "effect"
import { databasePath, openDatabase } from "../../../layers/state/database.ts"
import { migrations } from "../../../layers/state/schema.ts"
import { layerSqliteState } from "../../../layers/state/sqlite.ts"
import { AppId } from "../../../src/document/schema.ts"
import { type AppRecord, HostState } from "../../../src/services/HostState.ts"
import { killed, startScript, untilLine } from "../../support/child.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const app = (name: string, slot: number): AppRecord => ({
  appId: AppId.make(name),
  slot,
  attempts: 0,
  restartCount: 0
})

const notes = <A, E>(stateDir: string, use: (state: HostState["Service"]) => Effect.Effect<A, E>) =>
  HostState.use(use).pipe(Effect.provide(layerSqliteState({ stateDir })), Effect.scoped)

/** Changes the database behind the daemon's back. */
const tamper = (stateDir: string, sql: string) =>
  Effect.sync(() => {
    const db = new DatabaseSync(databasePath(stateDir))
    db.exec(sql)
    db.close()
  })

const script = new URL("../../support/state-child.ts", import.meta.url)

describe("the host's notes in SQLite", () => {
  it.live("are private: records hold the apps' environments", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      yield* Effect.gen(function* () {
        yield* HostState.use((state) => state.claimSlot(app("a", 0)))
        const directory = path.join(stateDir, "state")
        const modes = yield* Effect.promise(async () => {
          const names = await fs.readdir(directory)
          return Promise.all(
            [".", ...names].map(async (name) => [
              name,
              ((await fs.stat(path.join(directory, name))).mode & 0o777).toString(8)
            ])
          )
        })
        const open = modes.filter(([name, mode]) => mode !== (name === "." ? "700" : "600"))
        assert.deepStrictEqual(open, [])
        assert.include(
          modes.map(([name]) => name),
          "state.db-wal"
        )
      }).pipe(Effect.provide(layerSqliteState({ stateDir })))
    })
  )

  it.live("are used by one daemon at a time: the second is told the pid of the first", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const child = yield* startScript(script, [stateDir])
      yield* untilLine(child, (line) => line === "open")
      const error = yield* Effect.flip(notes(stateDir, (state) => state.apps))
      assert.strictEqual(error._tag, "DirectoryInUse")
      assert.include(error.message, `the daemon with pid ${child.pid} is using ${stateDir} (paths.state_dir)`)
      yield* killed(child)
      yield* notes(stateDir, (state) => state.apps)
    })
  )

  it.live("are refused to a second daemon in the same process too, until the first has ended", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const scope = yield* Scope.make()
      yield* Layer.buildWithScope(layerSqliteState({ stateDir }), scope)
      const error = yield* Effect.flip(notes(stateDir, (state) => state.apps))
      assert.strictEqual(error._tag, "DirectoryInUse")
      yield* Scope.close(scope, Exit.void)
      yield* notes(stateDir, (state) => state.apps)
    })
  )

  it.live("hold every write that was confirmed before the daemon was killed", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const child = yield* startScript(script, [stateDir, "write"])
      const confirmed = (yield* untilLine(child, (line) => line === "app-100")).filter((line) =>
        line.startsWith("app-")
      )
      yield* killed(child)
      const found = new Set(
        (yield* notes(stateDir, (state) => state.apps)).map((record): string => record.appId)
      )
      assert.deepStrictEqual(
        confirmed.filter((appId) => !found.has(appId)),
        []
      )
    })
  )

  it.live("are flushed to the disk before a write is confirmed", (context) =>
    Effect.gen(function* () {
      if (!hasStrace()) return context.skip("strace is not installed")
      const stateDir = yield* temporaryDirectory
      const trace = path.join(stateDir, "trace")
      execFileSync(
        "strace",
        [
          "-f",
          "-o",
          trace,
          "-e",
          "trace=fsync,fdatasync,write",
          process.execPath,
          script.pathname,
          stateDir,
          "ten"
        ],
        { stdio: "ignore" }
      )
      const calls = (yield* Effect.promise(() => fs.readFile(trace, "utf8")))
        .split("\n")
        .flatMap((line) =>
          /\bf(data)?sync\(/u.test(line) ? ["sync"] : /write\(1, "app-/u.test(line) ? ["confirmed"] : []
        )
      const confirmations = calls.flatMap((call, index) => (call === "confirmed" ? [index] : []))
      assert.strictEqual(confirmations.length, 10)
      assert.deepStrictEqual(
        confirmations.filter((index) => calls[index - 1] !== "sync"),
        []
      )
    })
  )

  it.live("name a record that is not readable, and show nothing of it", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      yield* notes(stateDir, (state) => state.claimSlot(app("a", 0)))
      for (const [record, reason] of [
        [`{"TOKEN": hunter2`, "it is not JSON"],
        [`{"appId": "a", "slot": "hunter2", "attempts": 0, "restartCount": 0}`, "slot"],
        [`{"appId": "hunter2", "slot": 0, "attempts": 0, "restartCount": 0}`, "another app or slot"]
      ] as const) {
        yield* tamper(stateDir, `UPDATE app SET record = '${record}'`)
        const error = yield* Effect.flip(notes(stateDir, (state) => state.apps))
        assert.strictEqual(error._tag, "HostStateError")
        assert.include(error.message, "read app a")
        assert.include(error.message, reason)
        assert.notInclude(error.message, "hunter2")
      }
    })
  )

  it.live("that a newer version wrote are refused, and left as they are", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      yield* notes(stateDir, (state) => state.apps)
      const newer = migrations.length + 1
      yield* tamper(stateDir, `PRAGMA user_version = ${newer}`)
      const error = yield* Effect.flip(notes(stateDir, (state) => state.apps))
      assert.include(error.message, `was written by a newer nibrunner (version ${newer} of its tables`)
    })
  )

  it.live("are brought up to date in steps that each happen whole", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      // A database in the state before the first step, where that step cannot be made.
      yield* Effect.promise(() => fs.mkdir(path.join(stateDir, "state")))
      yield* tamper(stateDir, "CREATE TABLE slot_cursor (x)")
      yield* Effect.flip(notes(stateDir, (state) => state.apps))
      yield* tamper(stateDir, "DROP TABLE slot_cursor")
      assert.deepStrictEqual(yield* notes(stateDir, (state) => state.apps), [])
    })
  )

  it.live("that are no database at all are named, and not replaced", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      yield* Effect.promise(async () => {
        await fs.mkdir(path.join(stateDir, "state"))
        await fs.writeFile(databasePath(stateDir), "precious".repeat(1000))
      })
      const error = yield* Effect.flip(notes(stateDir, (state) => state.apps))
      assert.include(error.message, "the host's notes cannot be used (open)")
      assert.include(error.message, "file is not a database")
      assert.include(yield* Effect.promise(() => fs.readFile(databasePath(stateDir), "utf8")), "precious")
    })
  )

  it.live("undo a write that fails half-way, and no other that shares its flush", () =>
    Effect.gen(function* () {
      const { read, write } = yield* openDatabase(yield* temporaryDirectory)
      const insert = (name: string, fails: boolean) =>
        write(`write ${name}`, (db) => {
          db.exec(`INSERT INTO volume (volume_id, app_id, record) VALUES ('${name}', 'a', '{}')`)
          if (fails) throw new Error("half-way")
        }).pipe(Effect.result)
      const results = yield* Effect.all([insert("a", false), insert("b", true), insert("c", false)], {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(
        results.map((result) => (result._tag === "Failure" ? result.failure.message : "written")),
        ["written", "the host's notes cannot be used (write b): half-way", "written"]
      )
      const names = yield* read("read", (db) => db.prepare("SELECT volume_id AS id FROM volume").all())
      assert.deepStrictEqual(
        names.map(({ id }) => id),
        ["a", "c"]
      )
    })
  )

  it.live("answer a write that comes too late, after the daemon's end", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const state = yield* HostState.pipe(Effect.provide(layerSqliteState({ stateDir })), Effect.scoped)
      const error = yield* Effect.flip(state.claimSlot(app("a", 0)))
      assert.include(error.message, "the notes are closed")
    })
  )
})

const hasStrace = (): boolean => {
  try {
    execFileSync("strace", ["-V"], { stdio: "ignore" })
    return true
  } catch {
    return false
  }
}
