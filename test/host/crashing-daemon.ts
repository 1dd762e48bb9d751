/**
 * A daemon that kills itself (SIGKILL) at one point of its work: the real reconciler over the real layers, with a
 * knife between them. `CRASH_AT` names the point, for instance `hypervisor.boot:after`, or several, separated by blanks,
 * that it comes by in this order and dies at the last.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { type Context, Effect, Layer } from "effect"
import { layerLive } from "../../layers/live.ts"
import { readConfig } from "../../src/cli/config-file.ts"
import { runHost } from "../../src/reconcile/host.ts"
import { Guest, type GuestSession } from "../../src/services/Guest.ts"
import { HostState } from "../../src/services/HostState.ts"
import { Hypervisor } from "../../src/services/Hypervisor.ts"
import { LayerImages } from "../../src/services/LayerImages.ts"
import { Network } from "../../src/services/Network.ts"
import { VolumeBackend } from "../../src/services/VolumeBackend.ts"

const ahead = process.env.CRASH_AT?.split(" ") ?? []

const dieAt = (name: string) =>
  Effect.sync(() => {
    if (name !== ahead[0]) return
    ahead.shift()
    if (ahead.length === 0) process.kill(process.pid, "SIGKILL")
  })

type AnyMethod = (...args: ReadonlyArray<never>) => Effect.Effect<unknown, unknown, unknown>

const cut = <A, E, R>(point: string, work: Effect.Effect<A, E, R>) =>
  dieAt(`${point}:before`).pipe(
    Effect.andThen(work),
    Effect.tap(() => dieAt(`${point}:after`))
  )

/** The service, with a knife before and after each of its Effects and of its methods that gives one. */
const armed = <S extends object>(name: string, service: S): S => {
  const methods = Object.entries(service).map(([key, method]) => {
    if (Effect.isEffect(method)) return [key, cut(`${name}.${key}`, method)]
    if (typeof method !== "function" || key === "reach") return [key, method]
    const call = method as AnyMethod
    return [key, (...args: ReadonlyArray<never>) => cut(`${name}.${key}`, call.apply(service, args as never))]
  })
  return Object.fromEntries(methods) as S
}

const arm = <I, S extends object>(key: Context.Key<I, S>, name: string) =>
  Layer.effect(
    key,
    Effect.map(key, (service) => armed(name, service))
  )

const arms = Layer.mergeAll(
  arm(HostState, "state"),
  arm(Hypervisor, "hypervisor"),
  arm(LayerImages, "images"),
  arm(Network, "network"),
  arm(VolumeBackend, "volumes"),
  Layer.effect(
    Guest,
    Effect.map(Guest, (guest) => ({
      connect: (machine, timeoutMs) =>
        cut("guest.connect", guest.connect(machine, timeoutMs)).pipe(
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
