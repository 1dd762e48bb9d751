import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { DatabaseSync } from "node:sqlite"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { databasePath } from "../../../layers/state/database.ts"
import { lookAtDocument, lookAtNotes } from "../../../layers/state/look.ts"
import { layerSqliteState } from "../../../layers/state/sqlite.ts"
import { AppId, HostId } from "../../../src/document/schema.ts"
import { type AppRecord, HostState } from "../../../src/services/HostState.ts"
import { killed, startScript, untilLine } from "../../support/child.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const app = (name: string, slot: number): AppRecord => ({
  appId: AppId.make(name),
  slot,
  attempts: 0,
  restartCount: 0
})

const script = new URL("../../support/state-child.ts", import.meta.url)

/** Every file below a folder, with what is in it. */
const filesIn = (folder: string) =>
  Effect.promise(async () => {
    const entries = await fs.readdir(folder, { recursive: true, withFileTypes: true })
    const files = entries
      .filter((entry) => entry.isFile())
      .map((entry) => path.join(entry.parentPath, entry.name))
    return Promise.all(
      files.sort().map(async (file) => [
        path.relative(folder, file),
        // Where SQLite keeps the locks of those who read is no part of the notes.
        file.endsWith("-shm")
          ? ""
          : createHash("sha256")
              .update(await fs.readFile(file))
              .digest("hex")
      ])
    )
  })

/** Looks, and proves that nothing was changed by it. */
const looked = <A, E>(folder: string, look: Effect.Effect<A, E>) =>
  Effect.gen(function* () {
    const before = yield* filesIn(folder)
    const seen = yield* look
    assert.deepStrictEqual(yield* filesIn(folder), before)
    return seen
  })

const apps = (stateDir: string) =>
  looked(stateDir, lookAtNotes(stateDir)).pipe(
    Effect.map(Option.map((notes) => notes.apps.map(({ appId }) => appId as string)))
  )

describe("a look at the host's notes", () => {
  it.live("finds none where no daemon has run, and makes none", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      assert.deepStrictEqual(yield* apps(stateDir), Option.none())
      assert.deepStrictEqual(yield* lookAtNotes(path.join(stateDir, "nowhere")), Option.none())
      assert.deepStrictEqual(yield* looked(stateDir, lookAtDocument(stateDir)), Option.none())
    })
  )

  it.live("sees what a running daemon has written, and changes nothing", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      yield* HostState.use((daemon) =>
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* apps(stateDir), Option.some([]))
          yield* daemon.claimSlot(app("a", 0))
          const document = { hostId: HostId.make("h"), digest: "0".repeat(64), text: "{}" }
          yield* daemon.accept(document)
          assert.deepStrictEqual(yield* apps(stateDir), Option.some(["a"]))
          assert.deepStrictEqual(yield* looked(stateDir, lookAtDocument(stateDir)), Option.some(document))
          yield* daemon.claimSlot(app("b", 1))
          assert.deepStrictEqual(yield* apps(stateDir), Option.some(["a", "b"]))
        })
      ).pipe(Effect.provide(layerSqliteState({ stateDir })))
    })
  )

  it.live("sees what an ended daemon has left, and leaves no file beside it", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      yield* HostState.use((daemon) => daemon.claimSlot(app("a", 0))).pipe(
        Effect.provide(layerSqliteState({ stateDir }))
      )
      assert.deepStrictEqual(yield* apps(stateDir), Option.some(["a"]))
      const names = (yield* filesIn(stateDir)).map(([name]) => name)
      assert.deepStrictEqual(names, ["state/daemon.lock", "state/daemon.pid", "state/state.db"])
    })
  )

  it.live("sees the last word of a daemon that was killed", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      const child = yield* startScript(script, [stateDir, "write"])
      const lines = yield* untilLine(child, (line) => line === "app-3")
      yield* killed(child)
      const seen = Option.getOrThrow(yield* apps(stateDir))
      assert.includeMembers(seen, lines.slice(1))
    })
  )

  it.live("says so when another version has written them", () =>
    Effect.gen(function* () {
      const stateDir = yield* temporaryDirectory
      yield* HostState.use((daemon) => daemon.apps).pipe(Effect.provide(layerSqliteState({ stateDir })))
      const db = new DatabaseSync(databasePath(stateDir))
      db.exec("PRAGMA user_version = 99")
      db.close()
      const error = yield* Effect.flip(lookAtNotes(stateDir))
      assert.include(error.message, "was written by a newer nibrunner")
    })
  )
})
