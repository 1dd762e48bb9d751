/** What becomes of volumes while ZeroFS is away, slow or refused, and what is never done to them. */
import { execFileSync } from "node:child_process"
import * as fs from "node:fs"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Stream, SubscriptionRef } from "effect"
import { VolumeId } from "../../../src/document/schema.ts"
import { VolumeBackend } from "../../../src/services/VolumeBackend.ts"
import { isReal, refuseCredentials } from "../../support/zerofs/fixture.ts"
import { zerofsHost } from "../../support/zerofs/host.ts"

const MIB = 2 ** 20
const volumeId = VolumeId.make("vol-1")
const spec = { volumeId, sizeBytes: 16 * MIB }

/** A daemon's volumes, and the ZeroFS under them. */
const host = Effect.gen(function* () {
  const { zerofs, layer, ...rest } = yield* zerofsHost
  const begin = Effect.map(Layer.build(layer), (context) => Effect.provide(VolumeBackend, context)).pipe(
    Effect.flatten
  )
  return { ...rest, zerofs, begin }
})

const until = (
  volumes: VolumeBackend["Service"],
  condition: (trouble: string | undefined) => boolean
): Effect.Effect<string | undefined> =>
  SubscriptionRef.changes(volumes.trouble).pipe(
    Stream.filter(condition),
    Stream.runHead,
    Effect.map((found) => (found._tag === "Some" ? found.value : undefined))
  )

const inTrouble = (trouble: string | undefined) => trouble !== undefined
const inNone = (trouble: string | undefined) => trouble === undefined

describe("volumes on a ZeroFS that is away", () => {
  it.live("are in trouble that says where nobody answers, and in none when ZeroFS is back", () =>
    Effect.gen(function* () {
      const { zerofs, begin } = yield* host
      const volumes = yield* begin
      const said = yield* until(volumes, inTrouble)
      assert.include(
        said,
        `ZeroFS does not answer on ${zerofs.section.ninep_socket_path}: there is no such socket`
      )
      assert.include(said, "goes on by itself")
      const error = yield* Effect.flip(volumes.provision(spec))
      assert.include(error.message, "volume vol-1 cannot be created: ZeroFS does not answer on ")
      yield* zerofs.start
      yield* until(volumes, inNone)
      yield* volumes.provision(spec)

      yield* zerofs.kill
      yield* until(volumes, inTrouble)
      assert.include((yield* Effect.flip(volumes.attach(volumeId))).message, "nobody listens there")
      assert.include(
        (yield* Effect.flip(volumes.flush(volumeId))).message,
        "volume vol-1 cannot be flushed: "
      )
      yield* zerofs.start
      yield* until(volumes, inNone)
    })
  )

  it.live("are the same ones when it is back, and nothing is made anew", () =>
    Effect.gen(function* () {
      const { zerofs, begin, uuid } = yield* host
      yield* zerofs.start
      const volumes = yield* begin
      yield* volumes.provision(spec)
      const before = yield* uuid(volumeId)
      yield* zerofs.stop
      yield* Effect.flip(volumes.provision(spec))
      yield* zerofs.start
      yield* volumes.provision(spec)
      assert.strictEqual(yield* uuid(volumeId), before)
      assert.deepStrictEqual(yield* volumes.list, [volumeId])
    })
  )

  it.live("are waited for no longer than their time, though ZeroFS stands still", () =>
    Effect.gen(function* () {
      const { zerofs, begin } = yield* host
      yield* zerofs.start
      const volumes = yield* begin
      yield* zerofs.freeze
      assert.include(yield* until(volumes, inTrouble), "ZeroFS did not answer on ")
      const error = yield* Effect.flip(volumes.provision(spec))
      assert.include(error.message, "within 15 s")
      yield* zerofs.thaw
      yield* until(volumes, inNone)
      yield* volumes.provision(spec)
    })
  )

  it.live("are checkpointed by nobody, which is said", () =>
    Effect.gen(function* () {
      const { begin } = yield* host
      const { checkpoints } = yield* begin
      if (checkpoints === undefined) return assert.fail("there are checkpoints")
      const error = yield* Effect.flip(checkpoints.create("ckpt-1"))
      assert.match(
        error.message,
        /^checkpoint ckpt-1 cannot be created: zerofs checkpoint create.*: Failed to connect to RPC server/u
      )
    })
  )
})

describe("a volume's file in ZeroFS that holds no filesystem", () => {
  for (const [what, bytes] of [
    ["zeros", Buffer.alloc(16 * MIB)],
    ["something else", Buffer.alloc(16 * MIB, "something else ")]
  ] as const) {
    it.live(`but ${what} is left as it is, and the volume is refused by name`, () =>
      Effect.gen(function* () {
        const { zerofs, begin, size } = yield* host
        yield* zerofs.start
        const volumes = yield* begin
        // a volume of which nothing but the name is left
        yield* volumes.provision(spec)
        const { socketPath } = (yield* volumes.attach(volumeId)) as { readonly socketPath: string }
        const file = path.join(zerofs.directory, "bytes")
        fs.writeFileSync(file, bytes)
        execFileSync("qemu-img", [
          ...["convert", "-n", "-S", "0", "-f", "raw", "-O", "raw", file],
          `nbd+unix:///${volumeId}?socket=${socketPath}`
        ])
        const next = yield* begin
        const error = yield* Effect.flip(next.provision(spec))
        assert.include(
          error.message,
          "volume vol-1 cannot be created: its file .nbd/vol-1 in ZeroFS is there"
        )
        assert.include(error.message, "nothing is ever formatted over")
        assert.include((yield* Effect.flip(next.attach(volumeId))).message, "volume vol-1 cannot be attached")
        const grown = yield* Effect.flip(next.provision({ volumeId, sizeBytes: 32 * MIB }))
        assert.include(grown.message, "volume vol-1 cannot be grown")
        assert.strictEqual(yield* size(volumeId), 16 * MIB)
      })
    )
  }
})

describe("a reader of a checkpoint", () => {
  it.live("is gone when it is not needed any more, is one at a time, and never a second writer", () =>
    Effect.gen(function* () {
      const { zerofs, begin } = yield* host
      yield* zerofs.start
      const { provision, checkpoints } = yield* begin
      if (checkpoints === undefined) return assert.fail("there are checkpoints")
      yield* provision(spec)
      yield* checkpoints.create("ckpt-1")
      const readers = () =>
        fs.readdirSync("/proc").filter((pid) => {
          try {
            return fs
              .readFileSync(`/proc/${pid}/cmdline`, "utf8")
              .includes(zerofs.section.checkpoint_config_file)
          } catch {
            return false
          }
        }).length
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* checkpoints.open("ckpt-1", volumeId)
          assert.isAbove(readers(), 0)
        })
      )
      assert.strictEqual(readers(), 0)
      const opened = yield* Effect.forkChild(Effect.scoped(checkpoints.open("ckpt-1", volumeId)), {
        startImmediately: true
      })
      opened.interruptUnsafe()
      yield* Effect.scoped(checkpoints.open("ckpt-1", volumeId))
      assert.strictEqual(readers(), 0)
      assert.isFalse(fs.existsSync(path.join(zerofs.section.storage_url, "two-writers")))
    })
  )

  it.live("says why it cannot be started: its configuration is missing, or refused", () =>
    Effect.gen(function* () {
      const { zerofs, begin } = yield* host
      yield* zerofs.start
      const { provision, checkpoints } = yield* begin
      if (checkpoints === undefined) return assert.fail("there are checkpoints")
      yield* provision(spec)
      yield* checkpoints.create("ckpt-1")
      const open = Effect.flip(Effect.scoped(checkpoints.open("ckpt-1", volumeId)))
      const file = zerofs.section.checkpoint_config_file
      fs.writeFileSync(file, `${fs.readFileSync(file, "utf8")}\n[nonsense]\n`)
      assert.match((yield* open).message, /its reader ended: Failed to .*nonsense/u)
      fs.rmSync(file)
      assert.include((yield* open).message, `${file} cannot be read: nibrunnerd install writes it`)
    })
  )
})

if (!isReal) {
  describe("volumes of a ZeroFS whose store refuses it", () => {
    it.live("are in trouble and in none when the store takes it back", () =>
      Effect.gen(function* () {
        const { zerofs, begin } = yield* host
        yield* zerofs.start
        const volumes = yield* begin
        yield* volumes.provision(spec)
        yield* refuseCredentials(zerofs, true)
        const said = yield* until(volumes, inTrouble)
        assert.include(said, "its store cannot be used")
        assert.include(said, "host.env")
        const error = yield* Effect.flip(
          volumes.provision({ volumeId: VolumeId.make("vol-2"), sizeBytes: 16 * MIB })
        )
        assert.include(error.message, "volume vol-2 cannot be created: ")
        const flushed = yield* Effect.flip(volumes.checkpoints?.create("ckpt-1") ?? Effect.die("none"))
        assert.include(flushed.message, "ExpiredToken")
        yield* refuseCredentials(zerofs, false)
        yield* until(volumes, inNone)
        assert.deepStrictEqual(yield* volumes.list, [volumeId])
      })
    )
  })
}
