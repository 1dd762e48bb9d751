/** Directories that a test has to itself. */
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import { Effect } from "effect"

/** A new empty directory, removed with the scope whatever its modes have become. */
export const temporaryDirectory = Effect.acquireRelease(
  Effect.promise(() => fs.mkdtemp(path.join(os.tmpdir(), "nibrunner-test-"))),
  (directory) => Effect.promise(() => fs.rm(directory, { recursive: true, force: true }))
)
