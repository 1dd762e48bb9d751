/** Verifying a snapshot, and giving it to a QEMU that waits for it. */
import type { Writable } from "node:stream"
import { crc32 } from "node:zlib"
import { Effect } from "effect"
import type { SnapshotUnusable } from "../../../../src/services/Hypervisor.ts"
import type { FileProblem } from "../../../files/problem.ts"
import type { Qmp, QmpError } from "../qmp.ts"
import { parseRecord, readWhole, type SnapshotFiles, type StoredRecord } from "./files.ts"
import { verifyMemory } from "./memory.ts"

/** Why there is nothing to wake. */
export interface Unusable {
  readonly kind: SnapshotUnusable["kind"]
  readonly unusable: string
}

const damaged = (unusable: string): Unusable => ({ kind: "damaged", unusable })

/** The record of the snapshot; the other files are not looked at. */
export const readRecord = (files: SnapshotFiles): Effect.Effect<StoredRecord, Unusable> =>
  Effect.gen(function* () {
    const bytes = yield* readWhole(files.record).pipe(
      Effect.mapError((problem) => damaged(`its record cannot be read: ${problem.message}`))
    )
    if (bytes === undefined) {
      return yield* Effect.fail<Unusable>({
        kind: "missing",
        unusable: `there is none in ${files.directory}`
      })
    }
    const record = parseRecord(bytes)
    return record ?? (yield* Effect.fail(damaged("its record is damaged")))
  })

const readPart = (
  path: string,
  name: string,
  part: { readonly bytes: number; readonly crc32: number }
): Effect.Effect<Uint8Array, Unusable> =>
  Effect.gen(function* () {
    const bytes = yield* readWhole(path).pipe(
      Effect.mapError((problem) => damaged(`its ${name} cannot be read: ${problem.message}`))
    )
    if (bytes === undefined) return yield* Effect.fail(damaged(`its ${name} is missing`))
    return bytes.length === part.bytes && crc32(bytes) === part.crc32
      ? bytes
      : yield* Effect.fail(damaged(`its ${name} is damaged`))
  })

/** Verifies every byte of the snapshot that its record vouches for. Gives the state of its devices. */
export const verify = (files: SnapshotFiles, record: StoredRecord): Effect.Effect<Uint8Array, Unusable> =>
  Effect.gen(function* () {
    const state = yield* readPart(files.state, "state of devices", record.files.state)
    const sums = yield* readPart(files.sums, "list of checksums", record.files.sums)
    const copy = Uint8Array.from(sums)
    const damage = yield* verifyMemory(files.memory, new Uint32Array(copy.buffer), record.files.memory).pipe(
      Effect.mapError((problem: FileProblem) => damaged(`its memory cannot be read: ${problem.message}`))
    )
    return damage === undefined ? state : yield* Effect.fail(damaged(`its memory is damaged: ${damage}`))
  })

const LOOK_EVERY_MS = 1

/** The descriptor under which a VMM has its standard input: Node hands no other way in over to a process. */
const STDIN = 0

const send = (stdin: Writable, bytes: Uint8Array): Effect.Effect<void> =>
  Effect.callback((resume) => {
    // what QEMU has not read when it closes is no concern: its status tells
    stdin.once("close", () => resume(Effect.void))
    stdin.end(bytes, () => resume(Effect.void))
  })

/** Gives a QEMU that was started for it the state of the machine's devices. The machine is paused after. */
export const load = (qmp: Qmp, stdin: Writable, state: Uint8Array): Effect.Effect<void, QmpError> =>
  Effect.gen(function* () {
    yield* qmp.execute("migrate-incoming", { uri: `fd:${STDIN}` })
    yield* send(stdin, state)
    for (;;) {
      const answer = (yield* qmp.execute("query-status")) as { readonly status?: unknown } | undefined
      if (answer?.status !== "inmigrate") break
      yield* Effect.sleep(LOOK_EVERY_MS)
    }
  })
