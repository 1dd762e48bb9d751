/** Puts apps of a local host to sleep by hand. */
import { Effect } from "effect"
import { layerControlClient } from "../../layers/control/client.ts"
import { HostCommander } from "../../src/services/HostControl.ts"
import type { LocalHost } from "./host.ts"
import { Problem } from "./problem.ts"

/** Returns when the app sleeps. */
export const sleepNow = (host: LocalHost, appId: string) =>
  Effect.flatMap(HostCommander, (commander) => commander.sleep(appId)).pipe(
    Effect.mapError(({ reason }) => new Problem({ message: `${appId} does not sleep: ${reason}` })),
    Effect.provide(layerControlClient({ runtimeDir: host.runtime }))
  )
