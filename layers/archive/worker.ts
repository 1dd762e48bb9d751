/** The thread that unpacks an archive. It tells its parent in one message how it went. */
import { parentPort, workerData } from "node:worker_threads"
import { readArchive } from "./read.ts"
import { Refused } from "./sink.ts"
import { makeStaging } from "./staging.ts"
import type { UnpackOptions, UnpackOutcome } from "./unpack.ts"

/** Bytes of a tar that may be headers, fillings, litter and what later entries replace. */
const SLACK = 64 * 2 ** 20

const unpack = async ({ archive, workspace, destinationPath, room }: UnpackOptions): Promise<void> => {
  const staging = makeStaging({ workspace, destinationPath, room })
  await readArchive(archive, staging, 2 * room.bytes + SLACK)
  staging.finish()
}

const outcome = (reason: string | undefined): UnpackOutcome => (reason === undefined ? {} : { reason })

unpack(workerData).then(
  () => parentPort?.postMessage(outcome(undefined)),
  (error: unknown) => {
    if (!(error instanceof Refused)) throw error
    parentPort?.postMessage(outcome(error.message))
  }
)
