/** What the host has to know of its ZeroFS before it promises anything to guests. */
import * as fs from "node:fs/promises"
import { Effect } from "effect"
import { parse } from "smol-toml"
import type { ZerofsSection } from "../../../src/config/schema.ts"
import { cacheMemoryMib } from "../../../src/volume/zerofs-config.ts"
import { runZerofs } from "./command.ts"

/**
 * MiB that it takes as cache, by the very file that it runs with: guests are not promised them. Where that cannot be read
 * the log says so, and the configuration of this host counts.
 */
export const cacheMemory = (zerofs: ZerofsSection): Effect.Effect<number> =>
  Effect.tryPromise({
    try: async () => cacheMemoryMib(parse(await fs.readFile(zerofs.config_file, "utf8"))),
    catch: (error) => (error instanceof Error ? error.message : String(error))
  }).pipe(
    Effect.catch((reason) =>
      Effect.as(
        Effect.logWarning(
          `${zerofs.config_file} cannot be read, and volumes.zerofs.cache_memory_gib counts: ${reason}`
        ),
        zerofs.cache_memory_gib * 1024
      )
    )
  )

/** What `zerofs --version` says, without its name; `unknown` where it cannot be run, which the log says. */
export const zerofsVersion = (zerofs: ZerofsSection) =>
  runZerofs(zerofs.binary, ["--version"]).pipe(
    Effect.map((printed) => printed.trim().replace(/^zerofs /u, "")),
    Effect.catch((error) => Effect.as(Effect.logWarning(error.message), "unknown"))
  )
