import { execFileSync } from "node:child_process"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import { layerLocalFileVolumes } from "../../../layers/volume/local-file.ts"
import { VolumeId } from "../../../src/document/schema.ts"
import { VolumeBackend, type VolumeSpec } from "../../../src/services/VolumeBackend.ts"
import { isRunning, killed, startScript } from "../../support/child.ts"
import { temporaryDirectory } from "../../support/temporary.ts"
import { recordedTools, type Tools } from "../../support/tools.ts"
import { untilEntry } from "../../support/watch.ts"

const GIB = 2 ** 30
const volumeId = VolumeId.make("vol-1")

const host = (tools: Tools = recordedTools()) =>
  Effect.gen(function* () {
    const stateDir = yield* temporaryDirectory
    const directory = path.join(stateDir, "volumes")
    const layer = layerLocalFileVolumes({ stateDir }).pipe(Layer.provide(tools.layer))
    const provision = (spec: VolumeSpec) =>
      VolumeBackend.use((volumes) => volumes.provision(spec)).pipe(Effect.provide(layer))
    const entries = Effect.promise(() => fs.readdir(directory))
    return { stateDir, directory, file: path.join(directory, "vol-1.img"), layer, provision, entries, tools }
  })

const run = (tool: string, ...args: ReadonlyArray<string>): string =>
  execFileSync(tool, args, {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
    env: { PATH: `${process.env.PATH}:/usr/sbin:/sbin`, LC_ALL: "C" }
  })

describe("a volume as a file", () => {
  it.live("is sparse, private, and a clean ext4 with a journal and every block for the app", () =>
    Effect.gen(function* () {
      const { provision, file, directory, entries } = yield* host()
      yield* provision({ volumeId, sizeBytes: 8 * GIB })
      assert.deepStrictEqual(yield* entries, ["vol-1.img"])
      const stat = yield* Effect.promise(() => fs.stat(file))
      assert.strictEqual(stat.size, 8 * GIB)
      assert.isBelow(stat.blocks * 512, 32 * 2 ** 20)
      assert.strictEqual(stat.mode & 0o777, 0o600)
      assert.strictEqual((yield* Effect.promise(() => fs.stat(directory))).mode & 0o777, 0o700)
      run("e2fsck", "-fn", file)
      const superblock = run("dumpe2fs", "-h", file)
      assert.match(superblock, /^Filesystem features:.* has_journal .*extent/mu)
      assert.match(superblock, /^Reserved block count: +0$/mu)
      assert.match(superblock, /^Block size: +4096$/mu)
    })
  )

  it.live("leaves nothing for the guest's kernel to initialise in the background", () =>
    Effect.gen(function* () {
      const { provision, file } = yield* host()
      yield* provision({ volumeId, sizeBytes: 2 * GIB })
      const groups = run("dumpe2fs", file)
        .split("\n")
        .filter((line) => /^Group \d+:/u.test(line))
      assert.isAbove(groups.length, 1)
      assert.deepStrictEqual(
        groups.filter((line) => !line.includes("ITABLE_ZEROED")),
        []
      )
    })
  )

  it.live("runs no tool for a volume that is there, whether it stays, grows or may not shrink", () =>
    Effect.gen(function* () {
      const { provision, tools } = yield* host()
      yield* provision({ volumeId, sizeBytes: GIB })
      assert.deepStrictEqual(tools.run, ["mke2fs"])
      yield* provision({ volumeId, sizeBytes: GIB })
      yield* provision({ volumeId, sizeBytes: 2 * GIB })
      yield* Effect.flip(provision({ volumeId, sizeBytes: GIB }))
      assert.deepStrictEqual(tools.run, ["mke2fs"])
    })
  )

  it.live("that has grown takes the filesystem's growth too, many times its first size", () =>
    Effect.gen(function* () {
      const { provision, file } = yield* host()
      yield* provision({ volumeId, sizeBytes: 16 * 2 ** 20 })
      yield* provision({ volumeId, sizeBytes: 4 * GIB })
      run("e2fsck", "-fp", file)
      run("resize2fs", file)
      assert.match(run("dumpe2fs", "-h", file), /^Block count: +1048576$/mu)
    })
  )

  it.live("is not made where the tool fails: its last word is said and nothing is left", () =>
    Effect.gen(function* () {
      const { provision, entries } = yield* host(
        recordedTools(() => ["sh", "-c", "echo mke2fs: no room >&2; exit 1"])
      )
      const error = yield* Effect.flip(provision({ volumeId, sizeBytes: GIB }))
      assert.strictEqual(
        error.message,
        "volume vol-1 cannot be created: mke2fs failed (exit code 1): mke2fs: no room"
      )
      assert.deepStrictEqual(yield* entries, [])
    })
  )

  it.live("is not made where the tool is missing: its Debian package is named", () =>
    Effect.gen(function* () {
      const { provision } = yield* host(recordedTools(() => ["no-such-program-on-this-host"]))
      const error = yield* Effect.flip(provision({ volumeId, sizeBytes: GIB }))
      assert.strictEqual(
        error.message,
        "volume vol-1 cannot be created: mke2fs is not installed (Debian package e2fsprogs)"
      )
    })
  )

  it.live("leaves neither file nor process when its making is interrupted", () =>
    Effect.gen(function* () {
      const marks = yield* temporaryDirectory
      const tools = recordedTools(() => [
        "sh",
        "-c",
        `echo $$ > ${marks}/new; mv ${marks}/new ${marks}/pid; sleep 1000`
      ])
      const { provision, entries } = yield* host(tools)
      const started = yield* Effect.forkChild(
        untilEntry(marks, (name) => name === "pid"),
        { startImmediately: true }
      )
      const fiber = yield* Effect.forkChild(provision({ volumeId, sizeBytes: GIB }))
      yield* Fiber.join(started)
      yield* Fiber.interrupt(fiber)
      const pid = Number(yield* Effect.promise(() => fs.readFile(path.join(marks, "pid"), "utf8")))
      assert.isFalse(yield* isRunning(pid))
      assert.deepStrictEqual(yield* entries, [])
    })
  )

  it.live("is whole or absent whenever the daemon is killed, and is made by the next one", () =>
    Effect.gen(function* () {
      const { directory, file, entries, layer, stateDir } = yield* host()
      yield* Effect.promise(() => fs.mkdir(directory))
      // Killed when the file appears, when it gets its final name, and when its temporary name goes.
      for (const step of [1, 2, 3]) {
        let events = 0
        const reached = yield* Effect.forkChild(
          untilEntry(directory, () => {
            events += 1
            return events >= step
          }),
          { startImmediately: true }
        )
        const child = yield* startScript(new URL("../../support/provision-child.ts", import.meta.url), [
          stateDir
        ])
        yield* Fiber.join(reached)
        yield* killed(child)
        const whole = yield* VolumeBackend.use((volumes) => volumes.list).pipe(Effect.provide(layer))
        if (whole.length > 0) run("e2fsck", "-fn", file)
        assert.deepStrictEqual(yield* entries, whole.length > 0 ? ["vol-1.img"] : [])
        yield* VolumeBackend.use((volumes) => volumes.teardown(volumeId)).pipe(Effect.provide(layer))
      }
      yield* VolumeBackend.use((volumes) => volumes.provision({ volumeId, sizeBytes: GIB })).pipe(
        Effect.provide(layer)
      )
      run("e2fsck", "-fn", file)
    })
  )

  it.live("is not confused by other files in the directory", () =>
    Effect.gen(function* () {
      const { directory, layer } = yield* host()
      yield* Effect.promise(async () => {
        await fs.mkdir(directory)
        for (const name of ["notes.txt", ".hidden.img", "not an id.img", "x.img.bak"]) {
          await fs.writeFile(path.join(directory, name), "")
        }
      })
      const list = yield* VolumeBackend.use((volumes) => volumes.list).pipe(Effect.provide(layer))
      assert.deepStrictEqual(list, [])
    })
  )
})
