/** `<state_dir>/reported.json`. */
import * as path from "node:path"
import { Effect, Layer, Semaphore } from "effect"
import { ReportError, Reporter } from "../../src/services/Reporter.ts"
import { makeDirectory, replaceFile } from "../files/durable.ts"

export interface FileReporterOptions {
  /** Absolute. */
  readonly stateDir: string
}

/** The report is one line of JSON, readable by every user of the host (0644). Fails when the directory cannot be made. */
export const layerFileReporter = (options: FileReporterOptions) =>
  Layer.effect(
    Reporter,
    Effect.gen(function* () {
      yield* makeDirectory(options.stateDir)
      const file = path.join(options.stateDir, "reported.json")
      const turn = yield* Semaphore.make(1)
      return {
        write: (text) =>
          Effect.suspend(() => replaceFile(file, new TextEncoder().encode(`${text}\n`), 0o644)).pipe(
            Effect.mapError(({ reason }) => new ReportError({ path: file, reason })),
            turn.withPermits(1)
          )
      }
    })
  )
