/** Room on the disk for snapshots: some of it is never theirs, because volumes, logs and the host's own notes are there too. */
import { statfs } from "node:fs/promises"
import { Effect, type Scope } from "effect"
import { type FileProblem, onFile } from "../../../files/problem.ts"

const GIB = 2 ** 30

/** What is kept free of a disk of that size, in bytes: 8 GiB, of a small one a sixteenth. */
export const reserveOf = (totalBytes: number): number => Math.min(8 * GIB, Math.floor(totalBytes / 16))

/** What a snapshot takes beside the machine's memory: the state of its devices, the record, and what the filesystem needs. */
const BESIDE_BYTES = 2 * 2 ** 20

/** There is not enough: a clause. */
export interface NoRoom {
  readonly reason: string
}

export interface Room {
  /**
   * Holds room for a snapshot of a machine with so much memory, for as long as the scope is open: those that are written side by
   * side share what there is. Fails where the reserve would be touched.
   */
  readonly take: (
    directory: string,
    memoryBytes: number
  ) => Effect.Effect<void, NoRoom | FileProblem, Scope.Scope>
}

const gib = (bytes: number) => `${(bytes / GIB).toFixed(2)} GiB`

export const makeRoom = (): Room => {
  let held = 0
  return {
    take: (directory, memoryBytes) =>
      Effect.gen(function* () {
        const wanted = memoryBytes + BESIDE_BYTES
        const { bavail, blocks, bsize } = yield* onFile(directory, () => statfs(directory))
        const reserve = reserveOf(blocks * bsize)
        const free = bavail * bsize - held
        if (free - wanted < reserve) {
          return yield* Effect.fail<NoRoom>({
            reason:
              `the disk that holds ${directory} has ${gib(Math.max(0, free))} free, the snapshot may take ` +
              `${gib(wanted)}, and ${gib(reserve)} are kept free`
          })
        }
        yield* Effect.acquireRelease(
          Effect.sync(() => {
            held += wanted
          }),
          () =>
            Effect.sync(() => {
              held -= wanted
            })
        )
      })
  }
}
