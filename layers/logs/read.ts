/** `<state_dir>/logs`, for one who reads it beside a running daemon or without one. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect, Layer, Stream } from "effect"
import { LogReader, LogUnreadable } from "../../src/services/LogReader.ts"
import { type FileProblem, ifPresent, onFile } from "../files/problem.ts"
import { logFiles } from "./file.ts"
import { tail } from "./tail.ts"

const SUFFIX = ".log"

const unreadable = ({ code, path: file, reason }: FileProblem) =>
  new LogUnreadable({
    reason: code === "EACCES" ? `${file} may be read by the daemon's user alone, or by root` : reason
  })

export interface FileLogReaderOptions {
  /** Absolute. */
  readonly stateDir: string
}

export const layerFileLogReader = ({ stateDir }: FileLogReaderOptions) => {
  const directory = path.join(stateDir, "logs")
  return Layer.succeed(LogReader, {
    apps: ifPresent(onFile(directory, () => fs.readdir(directory))).pipe(
      Effect.map((names = []) => [
        ...new Set(
          names
            .map((name) => (name.endsWith(`${SUFFIX}.1`) ? name.slice(0, -2) : name))
            .filter((name) => name.endsWith(SUFFIX))
            .map((name) => name.slice(0, -SUFFIX.length))
        )
      ]),
      Effect.mapError(unreadable)
    ),
    records: (appId, range) => Stream.mapError(tail(logFiles(stateDir, appId), range), unreadable)
  })
}
