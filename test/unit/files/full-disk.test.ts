import { execFileSync } from "node:child_process"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { temporaryDirectory } from "../../support/temporary.ts"

interface Outcome {
  readonly message: string
  readonly entries: ReadonlyArray<string>
  readonly after: unknown
}
type Outcomes = Readonly<Record<"artifacts" | "images" | "volumes" | "state" | "reporter", Outcome>> & {
  readonly logs: { readonly said: ReadonlyArray<string>; readonly notes: ReadonlyArray<string> }
}

/** A mount namespace of its own; without root within a user namespace, where the host allows one. */
const unshare = process.getuid?.() === 0 ? ["-m"] : ["-rm"]

const canMount = (): boolean => {
  try {
    execFileSync("unshare", [...unshare, "mount", "-t", "tmpfs", "none", "/mnt"], { stdio: "ignore" })
    return true
  } catch {
    return false
  }
}

const script = new URL("../../support/full-disk-child.ts", import.meta.url).pathname

describe.skipIf(!canMount())("a disk that is full", () => {
  it.live(
    "is said by each layer that writes, which leaves nothing half written and goes on when there is room",
    () =>
      Effect.gen(function* () {
        const root = yield* temporaryDirectory
        const [disk, store] = [path.join(root, "disk"), path.join(root, "store")]
        yield* Effect.promise(async () => {
          await fs.mkdir(disk)
          await fs.mkdir(store)
        })
        const mountAndRun = `mount -t tmpfs -o size=2m none "$1" && exec "$0" "$2" "$1" "$3"`
        const output = execFileSync(
          "unshare",
          [...unshare, "sh", "-c", mountAndRun, process.execPath, disk, script, store],
          { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] }
        )
        const { artifacts, images, volumes, state, reporter, logs }: Outcomes = JSON.parse(output)

        assert.strictEqual(
          artifacts.message,
          `object "app" cannot be fetched: the disk that holds ${disk}/a/artifacts is full`
        )
        assert.deepStrictEqual(artifacts.entries, [])

        assert.include(images.message, `the executable layer "program"`)
        assert.include(images.message, "cannot be made into an image: the disk that holds")
        assert.deepStrictEqual(images.entries, [])

        assert.include(volumes.message, "volume v cannot be created: ")
        assert.match(volumes.message, /is full|No space left on device/u)
        assert.deepStrictEqual(volumes.entries, [])
        assert.deepStrictEqual(volumes.after, ["v"])

        assert.include(state.message, "claim slot 1 for app full")
        assert.match(state.message, /full|disk/u)
        assert.deepStrictEqual(state.after, ["before", "after"])

        assert.include(reporter.message, "is full")
        assert.deepStrictEqual(reporter.entries, ["reported.json"])
        assert.strictEqual(reporter.after, "before")

        assert.deepStrictEqual(logs.said, [
          `the log of app web cannot be written, its lines are lost: the disk that holds ${disk}/l/logs/web.log is full`,
          "the log of app web is written again; up to 1 lines were lost"
        ])
        assert.deepStrictEqual(logs.notes, ["before", "after", ""])
      })
  )
})
