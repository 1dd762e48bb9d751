/** The daemon: the reconciler on the layers that a configuration names. */
// A daemon decodes the same things for weeks. Before all that has a schema.
import "effect/schema/SchemaJITCompiler/enable"
import { Effect, Layer } from "effect"
import { layerLive } from "../layers/live.ts"
import { notifyReady } from "../layers/systemd/notify.ts"
import type { HostSecrets } from "../src/config/host-env.ts"
import type { HostConfig } from "../src/config/schema.ts"
import { runHost } from "../src/reconcile/host.ts"
import { HostControl } from "../src/services/HostControl.ts"

/** Every service is there and every app has its fiber when the host offers its commands: then systemd is told. */
const layerAnnounced = Layer.effect(
  HostControl,
  Effect.map(HostControl, (control) => ({
    offer: (commands) => Effect.andThen(control.offer(commands), notifyReady)
  }))
)

export const runDaemon = (config: HostConfig, secrets: HostSecrets) =>
  runHost.pipe(Effect.provide(layerAnnounced.pipe(Layer.provideMerge(layerLive(config, secrets)))))
