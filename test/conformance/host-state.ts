/** What the host's notes must do, wherever they are kept. */
import { assert, describe, it } from "@effect/vitest"
import { Effect, type Layer, Option, type Scope } from "effect"
import {
  AppId,
  CheckpointId,
  DeploymentId,
  DesiredInstance,
  ExportId,
  HostId,
  VolumeId
} from "../../src/document/schema.ts"
import {
  type AppRecord,
  type CheckpointRecord,
  type ExportRecord,
  HostState,
  type MeterRecord,
  type VolumeRecord
} from "../../src/services/HostState.ts"

export interface HostStateHarness {
  /** Each build is a daemon's start on the same notes; the one before has ended. */
  readonly layer: Layer.Layer<HostState, unknown>
}

const notes = <A, E, R>(use: (state: HostState["Service"]) => Effect.Effect<A, E, R>) => HostState.use(use)

const app = (name: string, slot: number, more: Partial<AppRecord> = {}): AppRecord => ({
  appId: AppId.make(name),
  slot,
  attempts: 0,
  restartCount: 0,
  ...more
})

const volume = (name: string, state: VolumeRecord["state"]): VolumeRecord => ({
  volumeId: VolumeId.make(name),
  appId: AppId.make(`app-of-${name}`),
  sizeBytes: 2 ** 40,
  state
})

const instance = DesiredInstance.make({
  appId: AppId.make("web"),
  deploymentId: DeploymentId.make("d-1"),
  volumeId: VolumeId.make("vol-1"),
  desiredState: "running",
  layers: [{ kind: "filesystem", digest: "a".repeat(64), objectKey: "base" }],
  config: {
    httpPort: 3000,
    command: {
      program: "/app",
      args: ["--ünï", "'\"\\"],
      workingDirectory: "/",
      environment: { KEY: "a\nb" }
    },
    resources: { vcpuCount: 1, memoryMib: 256 },
    healthCheck: { kind: "boot-completed" },
    restartPolicy: {
      maxRestarts: 3,
      initialBackoffMs: 1,
      maxBackoffMs: 2,
      backoffFactor: 1.5,
      resetAfterMs: 3
    }
  },
  hostnames: [],
  activation: null
})

export const hostStateConformance = (
  name: string,
  make: Effect.Effect<HostStateHarness, unknown, Scope.Scope>
) =>
  describe(`${name} as the host's notes`, () => {
    /** Each of the bodies is a daemon's life; the next begins when the one before has ended. */
    const test = (sentence: string, ...lives: ReadonlyArray<Effect.Effect<void, unknown, HostState>>) =>
      it.live(sentence, () =>
        Effect.flatMap(make, ({ layer }) =>
          Effect.forEach(lives, (life) => Effect.scoped(life.pipe(Effect.provide(layer))), { discard: true })
        )
      )

    test(
      "are empty at first",
      Effect.gen(function* () {
        assert.isTrue(Option.isNone(yield* notes((state) => state.document)))
        assert.deepStrictEqual(yield* notes((state) => state.apps), [])
        assert.deepStrictEqual(yield* notes((state) => state.volumes), [])
        assert.strictEqual(yield* notes((state) => state.slotCursor), -1)
      })
    )

    const text = `{"hostId": "h", "x": "ünï \u{1f600} \\u0000 ' \\" \n"}\0\n`
    test(
      "keep the accepted document to the byte, the last one only, over a restart",
      notes((state) => state.accept({ hostId: HostId.make("h"), digest: "1".repeat(64), text: "old" })).pipe(
        Effect.andThen(
          notes((state) => state.accept({ hostId: HostId.make("h"), digest: "2".repeat(64), text }))
        )
      ),
      Effect.gen(function* () {
        const document = yield* notes((state) => state.document)
        assert.deepStrictEqual(Option.getOrUndefined(document), {
          hostId: HostId.make("h"),
          digest: "2".repeat(64),
          text
        })
      })
    )

    const record = app("web", 0, {
      instance,
      machine: {
        machineId: "0123456789abcdef",
        appId: AppId.make("web"),
        slot: 0,
        guestImageVersion: "v",
        process: { pid: 4194304, hostBootId: "b", startTime: 123456789 }
      },
      startedAt: 1_700_000_000_123,
      lastRestart: { at: 1, attempt: 2, budget: 3, exit: { signal: 9 }, reason: "killed", backoffMs: 4 },
      attempts: 2
    })
    test(
      "keep an app's record as it was written, over a restart",
      notes((state) => state.claimSlot(app("web", 0))).pipe(
        Effect.andThen(notes((state) => state.saveApp(record)))
      ),
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* notes((state) => state.apps), [record])
      })
    )

    test(
      "move the cursor with each slot that is claimed, and not when a slot is given back",
      Effect.gen(function* () {
        yield* notes((state) => state.claimSlot(app("a", 0)))
        yield* notes((state) => state.claimSlot(app("b", 5)))
        yield* notes((state) => state.deleteApp(AppId.make("b")))
        assert.strictEqual(yield* notes((state) => state.slotCursor), 5)
      }),
      Effect.gen(function* () {
        assert.strictEqual(yield* notes((state) => state.slotCursor), 5)
        assert.deepStrictEqual(
          (yield* notes((state) => state.apps)).map((found) => found.appId),
          [AppId.make("a")]
        )
      })
    )

    test(
      "never let two apps hold one slot, and change nothing when they are asked to",
      Effect.gen(function* () {
        yield* notes((state) => state.claimSlot(app("a", 3)))
        yield* notes((state) => state.claimSlot(app("b", 4)))
        const claim = yield* Effect.flip(notes((state) => state.claimSlot(app("c", 3))))
        assert.include(claim.message, "slot 3 belongs to app a")
        const save = yield* Effect.flip(notes((state) => state.saveApp(app("b", 3, { attempts: 9 }))))
        assert.include(save.message, "slot 3 belongs to app a")
        assert.deepStrictEqual(yield* notes((state) => state.apps), [app("a", 3), app("b", 4)])
        assert.strictEqual(yield* notes((state) => state.slotCursor), 4)
      })
    )

    test(
      "give a slot to another app once its holder is deleted",
      Effect.gen(function* () {
        yield* notes((state) => state.claimSlot(app("a", 3)))
        yield* notes((state) => state.deleteApp(AppId.make("a")))
        yield* notes((state) => state.claimSlot(app("b", 3)))
        assert.deepStrictEqual(yield* notes((state) => state.apps), [app("b", 3)])
      })
    )

    test(
      "keep volumes, and forget those that are deleted, over a restart",
      Effect.gen(function* () {
        yield* notes((state) => state.saveVolume(volume("a", "provisioning")))
        yield* notes((state) => state.saveVolume(volume("b", "ready")))
        yield* notes((state) => state.saveVolume(volume("a", "ready")))
        yield* notes((state) => state.deleteVolume(VolumeId.make("b")))
      }),
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* notes((state) => state.volumes), [volume("a", "ready")])
      })
    )

    const checkpoint = (name: string, state: CheckpointRecord["state"]): CheckpointRecord => ({
      checkpointId: CheckpointId.make(name),
      volumeId: VolumeId.make("v"),
      state,
      ...(state === "creating" ? {} : { reference: `ref-${name}`, readyAt: 1_700_000_000_000 })
    })
    const written = (name: string, sizeBytes: number): ExportRecord => ({
      exportId: ExportId.make(name),
      sizeBytes,
      readyAt: 1_700_000_000_123,
      remark: "left out: 1 socket"
    })
    test(
      "keep checkpoints and exports, and forget those that are deleted, over a restart",
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* notes((state) => state.checkpoints), [])
        assert.deepStrictEqual(yield* notes((state) => state.exports), [])
        yield* notes((state) => state.saveCheckpoint(checkpoint("a", "creating")))
        yield* notes((state) => state.saveCheckpoint(checkpoint("b", "ready")))
        yield* notes((state) => state.saveCheckpoint(checkpoint("a", "ready")))
        yield* notes((state) => state.deleteCheckpoint(CheckpointId.make("b")))
        yield* notes((state) => state.saveExport(written("a", 1)))
        yield* notes((state) => state.saveExport(written("b", 2 ** 50)))
        yield* notes((state) => state.saveExport(written("a", 3)))
        yield* notes((state) => state.deleteExport(ExportId.make("b")))
      }),
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* notes((state) => state.checkpoints), [checkpoint("a", "ready")])
        assert.deepStrictEqual(yield* notes((state) => state.exports), [written("a", 3)])
      })
    )

    const meterRecord = (name: string, runningMs: number): MeterRecord => ({
      appId: AppId.make(name),
      meters: {
        runningMs,
        idleMs: 1,
        cpuMs: 2,
        rxBytes: Number.MAX_SAFE_INTEGER,
        txBytes: 4,
        diskProvisionedMibSeconds: 5.25,
        diskUsedMibSeconds: 0.1 + 0.2
      },
      counters: {
        machineId: "0123456789abcdef",
        at: 1_700_000_000_123,
        cpuBusyTicks: 7,
        receivedBytes: 8,
        sentBytes: 9
      },
      volumes: [{ volumeId: VolumeId.make("v"), totalBytes: 2 ** 40, usedBytes: 11, measuredAt: 12 }]
    })
    test(
      "keep meters as they were written, the last ones of each app, without those that are forgotten",
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* notes((state) => state.meters), [])
        yield* notes((state) => state.saveMeters([meterRecord("a", 1), meterRecord("b", 1)], []))
        yield* notes((state) =>
          state.saveMeters([meterRecord("a", 2)], [AppId.make("b"), AppId.make("nobody")])
        )
        // gone and come back between two writes
        yield* notes((state) => state.saveMeters([meterRecord("c", 3)], [AppId.make("c")]))
      }),
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* notes((state) => state.meters), [
          meterRecord("a", 2),
          meterRecord("c", 3)
        ])
      })
    )

    test(
      "are not disturbed when what is to be deleted is not there",
      Effect.gen(function* () {
        yield* notes((state) => state.deleteApp(AppId.make("nobody")))
        yield* notes((state) => state.deleteVolume(VolumeId.make("nothing")))
        yield* notes((state) => state.deleteCheckpoint(CheckpointId.make("nothing")))
        yield* notes((state) => state.deleteExport(ExportId.make("nothing")))
      })
    )

    test(
      "take writes of many apps at once, each on its own: one that is refused undoes no other",
      Effect.gen(function* () {
        yield* notes((state) => state.claimSlot(app("holder", 50)))
        const claims = Array.from({ length: 100 }, (_, slot) =>
          notes((state) => state.claimSlot(app(`app-${slot}`, slot))).pipe(Effect.result)
        )
        const results = yield* Effect.all(claims, { concurrency: "unbounded" })
        assert.deepStrictEqual(
          results.flatMap((result, slot) => (result._tag === "Failure" ? [slot] : [])),
          [50]
        )
        assert.strictEqual((yield* notes((state) => state.apps)).length, 100)
      }),
      Effect.gen(function* () {
        assert.strictEqual((yield* notes((state) => state.apps)).length, 100)
      })
    )
  })
