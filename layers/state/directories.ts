/** The directories that the daemon has to itself: held while it runs, and looked after. */
import * as fs from "node:fs/promises"
import { Effect, Layer } from "effect"
import type { HostConfig } from "../../src/config/schema.ts"
import {
  DirectoryNamedTwice,
  HostDirectories,
  LockUnusable,
  type OwnDirectory
} from "../../src/services/HostDirectories.ts"
import { onFile } from "../files/problem.ts"
import { identityOf, lockDirectory } from "./lock.ts"

/** In the order in which they are held. Each has things in it that a second daemon would take for its own. */
export const ownDirectories = ({ paths, volumes: { zerofs } }: HostConfig): ReadonlyArray<OwnDirectory> => [
  { key: "paths.state_dir", path: paths.state_dir },
  { key: "paths.runtime_dir", path: paths.runtime_dir },
  { key: "paths.snapshot_dir", path: paths.snapshot_dir },
  ...(zerofs === undefined
    ? []
    : [{ key: "volumes.zerofs.checkpoint_runtime_dir" as const, path: zerofs.checkpoint_runtime_dir }])
]

/** Fails when another daemon has one of them, or two are one. They are given back when the layer's scope closes. */
export const layerHostDirectories = (directories: ReadonlyArray<OwnDirectory>) =>
  Layer.effect(
    HostDirectories,
    Effect.gen(function* () {
      const held = yield* Effect.forEach(directories, (own) =>
        Effect.andThen(lockDirectory(own), identity(own)).pipe(Effect.map((began) => ({ own, began })))
      )
      yield* areDistinct(directories)
      return {
        lost: Effect.map(
          Effect.filter(held, ({ own, began }) => Effect.map(identity(own), (now) => now !== began)),
          (lost) => lost.map(({ own }) => own)
        )
      }
    })
  )

const areDistinct = (
  directories: ReadonlyArray<OwnDirectory>
): Effect.Effect<void, DirectoryNamedTwice | LockUnusable> =>
  Effect.gen(function* () {
    const seen = new Map<string, OwnDirectory>()
    for (const own of directories) {
      const { dev, ino } = yield* onFile(own.path, () => fs.stat(own.path)).pipe(
        Effect.mapError(
          ({ message }) => new LockUnusable({ directory: own.path, key: own.key, reason: message })
        )
      )
      const directory = `${dev} ${ino}`
      const first = seen.get(directory)
      if (first !== undefined)
        return yield* new DirectoryNamedTwice({ directory: first.path, keys: [first.key, own.key] })
      seen.set(directory, own)
    }
  })

/** One that cannot be looked at is not there for the daemon. */
const identity = (own: OwnDirectory): Effect.Effect<string | undefined> =>
  Effect.orElseSucceed(identityOf(own), () => undefined)
