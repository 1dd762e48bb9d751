/** Unpacks an archive in a thread of its own, so that nothing else on the host waits for it. */
import { Worker } from "node:worker_threads"
import { Effect, Schema } from "effect"
import type { Room } from "../../src/volume/room.ts"
import { workerCode } from "./worker-code.ts"

export interface UnpackOptions {
  /** A local file. */
  readonly archive: string
  /** Absolute, as the app sees it. */
  readonly destinationPath: string
  /** An empty directory (0700) for what is unpacked: its `root` is laid out like the volume. */
  readonly workspace: string
  /** What the volume has room for. */
  readonly room: Room
}

/** What the thread says at its end. */
export interface UnpackOutcome {
  /** Why it refused. */
  readonly reason?: string
}

/** The archive is not unpacked, or not whole. `message` is a clause that follows the archive's name. */
export class UnpackRefused extends Schema.TaggedError<UnpackRefused>()("UnpackRefused", {
  reason: Schema.String
}) {
  override get message() {
    return this.reason
  }
}

/** MiB. What is unpacked is never held in memory, and little is known of it at any time. */
const HEAP = { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 8 }

/** Interrupted, the thread is ended. What it has laid out by then is the caller's to remove. */
export const unpackArchive = (options: UnpackOptions): Effect.Effect<void, UnpackRefused> =>
  Effect.callback((resume) => {
    const worker = new Worker(workerCode, {
      eval: typeof workerCode === "string",
      workerData: options,
      resourceLimits: HEAP,
      env: { LC_ALL: "C", PATH: `${process.env.PATH ?? ""}:/usr/sbin:/usr/bin:/sbin:/bin` }
    })
    const refuse = (reason: string) => resume(Effect.fail(new UnpackRefused({ reason })))
    worker.once("message", ({ reason }: UnpackOutcome) =>
      reason === undefined ? resume(Effect.void) : refuse(reason)
    )
    worker.once("error", (error) =>
      refuse(`cannot be unpacked: ${error instanceof Error ? error.message : String(error)}`)
    )
    worker.once("exit", () => refuse("cannot be unpacked: the thread that does it ended"))
    return Effect.promise(() => worker.terminate())
  })
