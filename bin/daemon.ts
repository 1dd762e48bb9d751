/** The daemon: the reconciler on the layers that a configuration names. */
// A daemon decodes the same things for weeks. Before all that has a schema.
import "effect/schema/SchemaJITCompiler/enable"
import { Effect } from "effect"
import { layerLive } from "../layers/live.ts"
import type { HostSecrets } from "../src/config/host-env.ts"
import type { HostConfig } from "../src/config/schema.ts"
import { runHost } from "../src/reconcile/host.ts"

export const runDaemon = (config: HostConfig, secrets: HostSecrets) =>
  runHost.pipe(Effect.provide(layerLive(config, secrets)))
