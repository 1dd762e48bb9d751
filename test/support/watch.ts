/** Waits for files to appear. */
import { watch } from "node:fs"
import * as fs from "node:fs/promises"
import { Effect } from "effect"

/** Succeeds with the name of the first entry that fits and comes into the directory, or is there. */
export const untilEntry = (directory: string, fits: (name: string) => boolean): Effect.Effect<string> =>
  Effect.callback((resume) => {
    const watcher = watch(directory, (_event, name) => {
      if (name !== null && fits(name)) resume(Effect.succeed(name))
    })
    fs.readdir(directory).then((names) => {
      const found = names.find(fits)
      if (found !== undefined) resume(Effect.succeed(found))
    })
    return Effect.sync(() => watcher.close())
  })
