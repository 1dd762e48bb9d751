/** Lays out this machine, or a directory that stands for one, and starts it with systemd. */
import { Effect, Layer } from "effect"
import { ChildProcessSpawner } from "effect/process"
import { HostNotReady, Installer, InstallFailed } from "../../src/services/Installer.ts"
import { installHost, type Program } from "./install.ts"
import type { Place } from "./place.ts"
import { startHost } from "./start.ts"

export interface InstallerOptions extends Program {
  /** The files of the program: a daemon that was started before one of them was changed runs an older one. */
  readonly files: ReadonlyArray<string>
  /** The directory that stands for this machine's root; empty where it is this machine's. */
  readonly machineRoot?: string
}

/** What goes wrong on the way is a sentence already. */
const asFailure = <A, R>(
  work: Effect.Effect<A, HostNotReady | InstallFailed | { readonly reason: string } | Error, R>
) =>
  Effect.mapError(work, (error) =>
    error instanceof HostNotReady || error instanceof InstallFailed
      ? error
      : new InstallFailed({ reason: "reason" in error ? error.reason : error.message })
  )

export const layerInstaller = (options: InstallerOptions) =>
  Layer.effect(
    Installer,
    Effect.gen(function* () {
      const spawner = yield* ChildProcessSpawner.ChildProcessSpawner
      const withTools = Effect.provideService(ChildProcessSpawner.ChildProcessSpawner, spawner)
      const machine: Place = { root: options.machineRoot ?? "", live: true }
      return {
        install: (request) =>
          installHost(
            options,
            request.root === undefined ? machine : { root: request.root, live: false },
            request
          ).pipe(asFailure, withTools),
        start: (request) =>
          startHost(options, machine, { ...request, root: undefined, from: undefined }).pipe(
            asFailure,
            withTools
          )
      }
    })
  )
