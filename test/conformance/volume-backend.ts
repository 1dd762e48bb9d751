/** What every volume backend must do. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, type Layer, type Scope, SubscriptionRef } from "effect"
import { VolumeId } from "../../src/document/schema.ts"
import { type Checkpoints, type NbdExport, VolumeBackend } from "../../src/services/VolumeBackend.ts"

export interface VolumeBackendHarness {
  /** Each build is a daemon's start on the same disk. */
  readonly layer: Layer.Layer<VolumeBackend, unknown>
  /** What tells one formatting of a volume from another, for instance the filesystem's UUID. */
  readonly formatting: (volumeId: VolumeId) => Effect.Effect<string>
  /** Size of the device, bytes. */
  readonly size: (volumeId: VolumeId) => Effect.Effect<number>
  /** Where there are checkpoints: the same of a volume as a checkpoint has it. */
  readonly formattingAt?: (opened: NbdExport) => Effect.Effect<string>
}

const MIB = 2 ** 20
const id = (name: string) => VolumeId.make(name)
const backend = <A, E, R>(use: (volumes: VolumeBackend["Service"]) => Effect.Effect<A, E, R>) =>
  VolumeBackend.use(use)

export const volumeBackendConformance = (
  name: string,
  make: Effect.Effect<VolumeBackendHarness, unknown, Scope.Scope>
) =>
  describe(`${name} as a volume backend`, () => {
    const test = (
      sentence: string,
      body: (harness: VolumeBackendHarness) => Effect.Effect<void, unknown, VolumeBackend | Scope.Scope>
    ) =>
      it.live(sentence, () =>
        Effect.flatMap(make, (harness) => body(harness).pipe(Effect.provide(harness.layer)))
      )

    test("makes a volume of exactly the size that was asked for, even an odd one", ({ size }) =>
      Effect.gen(function* () {
        yield* backend((volumes) => volumes.provision({ volumeId: id("vol-1"), sizeBytes: 16 * MIB + 1 }))
        yield* backend((volumes) => volumes.attach(id("vol-1")))
        assert.strictEqual(yield* size(id("vol-1")), 16 * MIB + 1)
        assert.deepStrictEqual(yield* backend((volumes) => volumes.list), [id("vol-1")])
      }))

    test("never formats a volume again that is there, also after a restart", ({ formatting, layer }) =>
      Effect.gen(function* () {
        const provision = backend((volumes) =>
          volumes.provision({ volumeId: id("vol-1"), sizeBytes: 16 * MIB })
        )
        yield* provision
        const first = yield* formatting(id("vol-1"))
        yield* provision
        yield* provision.pipe(Effect.provide(layer))
        assert.strictEqual(yield* formatting(id("vol-1")), first)
      }))

    test("formats a volume once, though two ask for it at the same time", ({ formatting }) =>
      Effect.gen(function* () {
        const provision = backend((volumes) =>
          volumes.provision({ volumeId: id("vol-1"), sizeBytes: 16 * MIB })
        ).pipe(Effect.andThen(Effect.suspend(() => formatting(id("vol-1")))))
        const [first, second] = yield* Effect.all([provision, provision], { concurrency: "unbounded" })
        assert.strictEqual(first, second)
      }))

    test("formats two volumes differently", ({ formatting }) =>
      Effect.gen(function* () {
        for (const volumeId of [id("a"), id("b")]) {
          yield* backend((volumes) => volumes.provision({ volumeId, sizeBytes: 16 * MIB }))
        }
        assert.notStrictEqual(yield* formatting(id("a")), yield* formatting(id("b")))
      }))

    test("grows a volume and keeps what is on it", ({ formatting, size }) =>
      Effect.gen(function* () {
        yield* backend((volumes) => volumes.provision({ volumeId: id("v"), sizeBytes: 16 * MIB }))
        const before = yield* formatting(id("v"))
        yield* backend((volumes) => volumes.provision({ volumeId: id("v"), sizeBytes: 64 * MIB }))
        assert.strictEqual(yield* size(id("v")), 64 * MIB)
        assert.strictEqual(yield* formatting(id("v")), before)
      }))

    test("refuses to shrink a volume, naming both sizes, and leaves it as it is", ({ size }) =>
      Effect.gen(function* () {
        yield* backend((volumes) => volumes.provision({ volumeId: id("v"), sizeBytes: 32 * MIB }))
        const error = yield* Effect.flip(
          backend((volumes) => volumes.provision({ volumeId: id("v"), sizeBytes: 16 * MIB }))
        )
        assert.include(error.message, "volume v cannot be grown")
        assert.include(error.message, String(32 * MIB))
        assert.include(error.message, String(16 * MIB))
        assert.strictEqual(yield* size(id("v")), 32 * MIB)
      }))

    for (const sizeBytes of [0, 1, 4096, 8 * MIB - 1]) {
      test(`refuses ${sizeBytes} bytes as too small for ext4, naming the size`, () =>
        Effect.gen(function* () {
          const error = yield* Effect.flip(
            backend((volumes) => volumes.provision({ volumeId: id("v"), sizeBytes }))
          )
          assert.include(error.message, `volume v cannot be created: sizeBytes ${sizeBytes} is too small`)
          assert.deepStrictEqual(yield* backend((volumes) => volumes.list), [])
        }))
    }

    test("attaches nothing that was never provisioned", () =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(backend((volumes) => volumes.attach(id("nowhere"))))
        assert.include(error.message, "volume nowhere cannot be attached")
      }))

    test("deletes a volume, and is not disturbed when it is gone already", () =>
      Effect.gen(function* () {
        yield* backend((volumes) => volumes.provision({ volumeId: id("v"), sizeBytes: 16 * MIB }))
        yield* backend((volumes) => volumes.provision({ volumeId: id("w"), sizeBytes: 16 * MIB }))
        yield* backend((volumes) => volumes.teardown(id("v")))
        yield* backend((volumes) => volumes.teardown(id("v")))
        assert.deepStrictEqual(yield* backend((volumes) => volumes.list), [id("w")])
        yield* Effect.flip(backend((volumes) => volumes.attach(id("v"))))
      }))

    test("makes a volume of the same name anew after it was deleted", ({ formatting }) =>
      Effect.gen(function* () {
        const provision = backend((volumes) => volumes.provision({ volumeId: id("v"), sizeBytes: 16 * MIB }))
        yield* provision
        const first = yield* formatting(id("v"))
        yield* backend((volumes) => volumes.teardown(id("v")))
        yield* provision
        assert.notStrictEqual(yield* formatting(id("v")), first)
      }))

    test("makes a volume whole whose making was interrupted", ({ size }) =>
      Effect.gen(function* () {
        const provision = backend((volumes) => volumes.provision({ volumeId: id("v"), sizeBytes: 16 * MIB }))
        const fiber = yield* Effect.forkChild(provision, { startImmediately: true })
        yield* Fiber.interrupt(fiber)
        yield* provision
        assert.strictEqual(yield* size(id("v")), 16 * MIB)
        assert.deepStrictEqual(yield* backend((volumes) => volumes.list), [id("v")])
      }))

    test("flushes a volume, and says of one that is not there that there is none", () =>
      Effect.gen(function* () {
        yield* backend((volumes) => volumes.provision({ volumeId: id("v"), sizeBytes: 16 * MIB }))
        yield* backend((volumes) => volumes.flush(id("v")))
        const error = yield* Effect.flip(backend((volumes) => volumes.flush(id("w"))))
        assert.include(error.message, "volume w cannot be flushed")
      }))

    test("is in no trouble", () =>
      Effect.gen(function* () {
        const trouble = yield* backend((volumes) => SubscriptionRef.get(volumes.trouble))
        assert.isUndefined(trouble)
      }))

    const checkpointing = (
      sentence: string,
      body: (
        checkpoints: Checkpoints,
        harness: Required<VolumeBackendHarness>
      ) => Effect.Effect<void, unknown, VolumeBackend | Scope.Scope>
    ) =>
      test(sentence, (harness) =>
        Effect.gen(function* () {
          const { checkpoints } = yield* VolumeBackend
          assert.strictEqual(checkpoints !== undefined, harness.formattingAt !== undefined)
          const { formattingAt } = harness
          if (checkpoints !== undefined && formattingAt !== undefined)
            yield* body(checkpoints, { ...harness, formattingAt })
        })
      )

    checkpointing("cuts a checkpoint once, lists it and deletes it, or has none at all", (checkpoints) =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* checkpoints.list, [])
        const made = yield* checkpoints.create("ckpt-1")
        assert.strictEqual(made.name, "ckpt-1")
        assert.notStrictEqual(made.reference, "")
        assert.strictEqual(made.createdAt % 1000, 0)
        assert.deepStrictEqual(yield* checkpoints.create("ckpt-1"), made)
        const other = yield* checkpoints.create("export-2")
        const byName = (yield* checkpoints.list).toSorted((a, b) => a.name.localeCompare(b.name))
        assert.deepStrictEqual(
          byName.map(({ name, reference }) => ({ name, reference })),
          [made, other].map(({ name, reference }) => ({ name, reference }))
        )
        yield* checkpoints.delete("ckpt-1")
        yield* checkpoints.delete("ckpt-1")
        assert.deepStrictEqual(
          (yield* checkpoints.list).map(({ name }) => name),
          ["export-2"]
        )
      })
    )

    checkpointing(
      "opens a volume as it was at the checkpoint, whatever became of it",
      (checkpoints, harness) =>
        Effect.gen(function* () {
          const provision = backend((volumes) =>
            volumes.provision({ volumeId: id("v"), sizeBytes: 16 * MIB })
          )
          yield* provision
          const then = yield* harness.formatting(id("v"))
          yield* checkpoints.create("ckpt-1")
          yield* backend((volumes) => volumes.teardown(id("v")))
          yield* provision
          assert.notStrictEqual(yield* harness.formatting(id("v")), then)
          const open = checkpoints.open("ckpt-1", id("v"))
          const read = Effect.scoped(Effect.flatMap(open, harness.formattingAt))
          assert.strictEqual(yield* read, then)
          assert.deepStrictEqual(yield* Effect.all([read, read], { concurrency: "unbounded" }), [then, then])
        })
    )

    checkpointing("opens no checkpoint that there is not, and no volume that is not in it", (checkpoints) =>
      Effect.gen(function* () {
        const opened = (name: string) => Effect.flip(Effect.scoped(checkpoints.open(name, id("v"))))
        assert.include((yield* opened("nowhere")).message, "checkpoint nowhere cannot be opened: ")
        yield* checkpoints.create("ckpt-1")
        const message = (yield* opened("ckpt-1")).message
        assert.include(message, "checkpoint ckpt-1 cannot be opened: volume v is not in it")
      })
    )
  })
