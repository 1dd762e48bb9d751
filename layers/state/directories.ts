/** The directories that the daemon has to itself: held while it runs, and looked after. */
import { Effect, Layer } from "effect"
import type { HostConfig } from "../../src/config/schema.ts"
import { HostDirectories, type OwnDirectory } from "../../src/services/HostDirectories.ts"
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

/** Fails when another daemon has one of them. They are given back when the layer's scope closes. */
export const layerHostDirectories = (directories: ReadonlyArray<OwnDirectory>) =>
  Layer.effect(
    HostDirectories,
    Effect.gen(function* () {
      const held = yield* Effect.forEach(directories, (own) =>
        Effect.andThen(lockDirectory(own), identity(own)).pipe(Effect.map((began) => ({ own, began })))
      )
      return {
        lost: Effect.map(
          Effect.filter(held, ({ own, began }) => Effect.map(identity(own), (now) => now !== began)),
          (lost) => lost.map(({ own }) => own)
        )
      }
    })
  )

/** One that cannot be looked at is not there for the daemon. */
const identity = (own: OwnDirectory): Effect.Effect<string | undefined> =>
  Effect.orElseSucceed(identityOf(own), () => undefined)
