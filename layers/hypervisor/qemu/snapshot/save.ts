/** Taking a snapshot of a machine that QEMU has paused, and letting it run on when that fails. */
import { crc32 } from "node:zlib"
import { Clock, Effect } from "effect"
import type { MachineSpec, SnapshotPlace, SnapshotRecord } from "../../../../src/services/Hypervisor.ts"
import type { FileProblem } from "../../../files/problem.ts"
import { MEMORY_BLOCK } from "../command-line.ts"
import type { Qmp, QmpError } from "../qmp.ts"
import {
  commitPending,
  discardSnapshot,
  makePending,
  recordText,
  type StoredRecord,
  writePart
} from "./files.ts"
import { type NotReceived, receiveMachine, type SaveSocket } from "./receive.ts"

/** No bound: QEMU sends 128 MiB a second by default. */
const MAX_BANDWIDTH = 2 ** 45
const LOOK_EVERY_MS = 5

const OVER = ["completed", "failed", "cancelled", "none"]

interface Progress {
  readonly status: string
  readonly reason: string
}

const text = (value: unknown, otherwise: string) => (typeof value === "string" ? value : otherwise)

const progress = (qmp: Qmp): Effect.Effect<Progress, QmpError> =>
  Effect.map(qmp.execute("query-migrate"), (answer) => {
    const told = (answer ?? {}) as { readonly status?: unknown; readonly "error-desc"?: unknown }
    return { status: text(told.status, "none"), reason: text(told["error-desc"], "it does not say why") }
  })

/** Waits until QEMU has sent all; fails with its reason. */
const sent = (qmp: Qmp): Effect.Effect<void, QmpError | NotReceived> =>
  Effect.gen(function* () {
    for (;;) {
      const { status, reason } = yield* progress(qmp)
      if (status === "completed") return
      if (OVER.includes(status)) {
        return yield* Effect.fail({ reason: `QEMU could not send the machine: ${reason}` })
      }
      yield* Effect.sleep(LOOK_EVERY_MS)
    }
  })

/** Lets a machine run whose sleep is given up, at whatever point. */
export const resume = (qmp: Qmp): Effect.Effect<void, QmpError> =>
  Effect.gen(function* () {
    for (;;) {
      const { status } = yield* progress(qmp)
      if (OVER.includes(status)) break
      yield* qmp.execute("migrate_cancel")
      yield* Effect.sleep(LOOK_EVERY_MS)
    }
    yield* qmp.execute("cont")
  })

const plain = (error: FileProblem | QmpError | NotReceived): NotReceived => ({
  reason: "reason" in error && !("message" in error) ? error.reason : (error as { message: string }).message
})

const bytesOf = (extents: Uint32Array) => new Uint8Array(extents.buffer)

/** Pauses the machine and writes its snapshot, up to but without the commit. */
export const save = (
  qmp: Qmp,
  socket: SaveSocket,
  spec: MachineSpec,
  place: SnapshotPlace,
  hypervisor: string
): Effect.Effect<SnapshotRecord, NotReceived> =>
  Effect.gen(function* () {
    const files = yield* makePending(place.directory)
    yield* qmp.execute("stop")
    const takenAt = yield* Clock.currentTimeMillis
    const memory = { block: MEMORY_BLOCK, bytes: spec.memoryMib * 1024 * 1024 }
    const receive = yield* receiveMachine(socket, memory, files.memory, ({ extents, state }) =>
      Effect.all([writePart(files.sums, bytesOf(extents)), writePart(files.state, state)], {
        concurrency: "unbounded",
        discard: true
      })
    )
    yield* qmp.execute("migrate-set-parameters", { "max-bandwidth": MAX_BANDWIDTH })
    yield* qmp.execute("migrate", { uri: `unix:${socket.path}` })
    const [{ extents, state, memoryBytes }] = yield* Effect.all([receive, sent(qmp)], {
      concurrency: "unbounded"
    })
    const sumBytes = bytesOf(extents)
    const record: StoredRecord = {
      spec,
      deploymentId: place.deploymentId,
      takenAt,
      hypervisor,
      storedBytes: memoryBytes + sumBytes.length + state.length,
      files: {
        memory: { bytes: memory.bytes, stored: memoryBytes },
        sums: { bytes: sumBytes.length, crc32: crc32(sumBytes) },
        state: { bytes: state.length, crc32: crc32(state) }
      }
    }
    yield* writePart(files.record, new TextEncoder().encode(recordText(record)))
    const { files: _, ...told } = record
    return told
  }).pipe(Effect.scoped, Effect.mapError(plain))

/** Gives the snapshot its place: it counts from here on. */
export const commit = (place: SnapshotPlace): Effect.Effect<void, NotReceived> =>
  commitPending(place.directory).pipe(Effect.mapError(plain))

/** Removes what there is of the snapshot; nothing of it may be left when its machine runs on. */
export const undo = (place: SnapshotPlace): Effect.Effect<void, NotReceived> =>
  discardSnapshot(place.directory).pipe(Effect.mapError(plain))
