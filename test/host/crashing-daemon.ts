/**
 * A daemon that kills itself (SIGKILL) at one point of its work: the real reconciler over the real layers, with a
 * knife between them. `CRASH_AT` names the point, for instance `hypervisor.boot:after`.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { layerLive } from "../../layers/live.ts"
import { readConfig } from "../../src/cli/config-file.ts"
import { runHost } from "../../src/reconcile/host.ts"
import { Guest, type GuestSession } from "../../src/services/Guest.ts"
import { HostState } from "../../src/services/HostState.ts"
import { Hypervisor } from "../../src/services/Hypervisor.ts"
import { LayerImages } from "../../src/services/LayerImages.ts"
import { Network } from "../../src/services/Network.ts"
import { VolumeBackend } from "../../src/services/VolumeBackend.ts"

const point = process.env.CRASH_AT

const dieAt = (name: string) =>
  Effect.sync(() => {
    if (name === point) process.kill(process.pid, "SIGKILL")
  })

type AnyMethod = (...args: ReadonlyArray<never>) => Effect.Effect<unknown, unknown, unknown>

/** The service, with a knife before and after each of its methods that gives an Effect. */
const armed = <S extends object>(name: string, service: S): S => {
  const methods = Object.entries(service).map(([key, method]) => {
    if (typeof method !== "function" || key === "reach") return [key, method]
    const call = method as AnyMethod
    const cut = (...args: ReadonlyArray<never>) =>
      dieAt(`${name}.${key}:before`).pipe(
        Effect.andThen(call.apply(service, args as never)),
        Effect.tap(() => dieAt(`${name}.${key}:after`))
      )
    return [key, cut]
  })
  return Object.fromEntries(methods) as S
}

const arms = Layer.mergeAll(
  Layer.effect(
    HostState,
    Effect.map(HostState, (service) => armed("state", service))
  ),
  Layer.effect(
    Hypervisor,
    Effect.map(Hypervisor, (service) => armed("hypervisor", service))
  ),
  Layer.effect(
    LayerImages,
    Effect.map(LayerImages, (service) => armed("images", service))
  ),
  Layer.effect(
    Network,
    Effect.map(Network, (service) => armed("network", service))
  ),
  Layer.effect(
    VolumeBackend,
    Effect.map(VolumeBackend, (service) => armed("volumes", service))
  ),
  Layer.effect(
    Guest,
    Effect.map(Guest, (guest) => ({
      connect: (machine, timeoutMs) =>
        dieAt("guest.connect:before").pipe(
          Effect.andThen(guest.connect(machine, timeoutMs)),
          Effect.tap(() => dieAt("guest.connect:after")),
          Effect.map((session): GuestSession => armed("session", session))
        )
    }))
  )
)

const daemon = Effect.gen(function* () {
  const { config } = yield* readConfig
  yield* runHost.pipe(Effect.provide(arms.pipe(Layer.provideMerge(layerLive(config, {})))))
})

NodeRuntime.runMain(daemon.pipe(Effect.provide(NodeServices.layer)))
