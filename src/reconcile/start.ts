/**
 * From a desired instance to a microVM whose guest has started its program.
 *
 * Every step writes what it intends before it acts. A start that fails or is superseded leaves no microVM, no
 * link and no memory held; what a daemon that dies here leaves is found by its machine id and taken up or ended
 * by the next.
 */
import { Clock, Deferred, Effect, Exit, Random, Scope } from "effect"
import type { DesiredInstance } from "../document/schema.ts"
import type { GuestSession } from "../services/Guest.ts"
import { BootFailed, type Machine, type MachineRecord, type MachineSpec } from "../services/Hypervisor.ts"
import type { NetworkLink } from "../services/Network.ts"
import { type App, withFetchProgress } from "./app-context.ts"
import { untilStarted, watch } from "./attachment.ts"
import { bootSpec } from "./boot-spec.ts"
import { unprobed } from "./health.ts"
import { describeExit } from "./machine-exit.ts"
import { attemptsOf } from "./plan.ts"

/** A guest that hangs on its way up is ended; so many of them, and the start has failed. */
const bootsPerStart = 3

const half = Random.nextIntBetween(0, 2 ** 32 - 1)

const newMachineId = Effect.all([half, half]).pipe(
  Effect.map((halves) => halves.map((value) => value.toString(16).padStart(8, "0")).join(""))
)

/** The guest ports that the host must reach. */
export const guestPorts = (instance: DesiredInstance): ReadonlyArray<number> => [
  instance.config.httpPort,
  ...(instance.config.ports ?? []).map(({ guestPort }) => guestPort)
]

/** The hello of a guest that was just booted or woken; the end of its VMM is the end of the wait. */
export const hello = (app: App, machine: Machine) => {
  const { appId } = app.model
  const ended = Deferred.await(machine.exit).pipe(
    Effect.flatMap((exit) => Effect.fail(new BootFailed({ appId, reason: describeExit(exit) })))
  )
  return app.host.guest.connect(machine, app.host.settings.guestHelloTimeoutMs).pipe(Effect.raceFirst(ended))
}

/** Ends a microVM that did not come up, and forgets it. */
export const discard = (app: App, machine: MachineRecord, scope: Scope.Closeable) =>
  Scope.close(scope, Exit.void).pipe(
    Effect.andThen(app.host.hypervisor.kill(machine)),
    Effect.andThen(app.amend(({ machine: _, startedAt: __, healthy: ___, ...record }) => record)),
    Effect.catch((error) => Effect.logError(error.message))
  )

/** One boot in a scope of its own, up to the guest's hello. Whatever goes wrong, the microVM is gone afterwards. */
const bootOnce = Effect.fnUntraced(function* (app: App, spec: Omit<MachineSpec, "machineId">) {
  const { host } = app
  const machineId = yield* newMachineId
  const intent: MachineRecord = {
    machineId,
    appId: spec.appId,
    slot: spec.slot,
    guestImageVersion: spec.image.version
  }
  yield* app.amend((record) => ({ ...record, machine: intent }))
  const scope = yield* Scope.fork(app.scope)
  return yield* Effect.gen(function* () {
    const machine = yield* host.hypervisor.boot({ ...spec, machineId }).pipe(Scope.provide(scope))
    yield* Effect.logDebug(`its VMM runs as process ${machine.record.process?.pid}`)
    yield* app.amend((record) => ({ ...record, machine: machine.record }))
    const session = yield* hello(app, machine).pipe(Scope.provide(scope))
    yield* Effect.logDebug("its guest has said hello")
    return { machine, scope, session }
  }).pipe(Effect.onExit((exit) => (Exit.isSuccess(exit) ? Effect.void : discard(app, intent, scope))))
})

const boot = (app: App, spec: Omit<MachineSpec, "machineId">) =>
  app.host.withStartPermit(
    app
      .progress({ kind: "booting" })
      .pipe(Effect.andThen(app.host.metrics.phase(app.model.appId, "boot", bootOnce(app, spec)))),
    (limit) => app.progress({ kind: "start-capacity-in-use", limit })
  )

/** Says that the start waits for memory; one that still waits was counted when it began to. */
const waitForMemory = (app: App, missingMib: number) =>
  (app.model.progress?.kind === "short-of-memory"
    ? Effect.void
    : app.host.metrics.startRefused("no_room")
  ).pipe(Effect.andThen(app.progress({ kind: "short-of-memory", missingMib })))

/** Holds the memory, runs the start, and gives the memory back unless the start succeeded. */
export const withMemory = <A, E>(app: App, memoryMib: number, run: Effect.Effect<A, E>) => {
  const { memory } = app.host
  const { appId } = app.model
  return memory
    .acquire(appId, memoryMib, (missingMib) => waitForMemory(app, missingMib))
    .pipe(
      Effect.andThen(run),
      Effect.onExit((exit) => (Exit.isSuccess(exit) ? Effect.void : memory.release(appId)))
    )
}

/** Counts the attempt, in the notes before anything is done. A new deployment starts with a fresh record. */
const countAttempt = Effect.fnUntraced(function* (app: App, instance: DesiredInstance) {
  const at = yield* Clock.currentTimeMillis
  yield* app.amend((record) => {
    const same = record.instance?.deploymentId === instance.deploymentId
    const { asleep: _, ...known } = record
    const { failure: __, lastRestart: ___, healthy: ____, booted: _____, ...rest } = known
    return {
      ...(same ? known : rest),
      instance,
      attempts: attemptsOf(record, instance) + 1,
      lastAttemptAt: at
    }
  })
})

/** Fetches the instance's layers, those that are not here yet; gives their paths, bottom first. */
export const prepareLayers = (app: App, instance: DesiredInstance) => {
  const { host, model } = app
  const { metrics, images } = host
  const prepared = Effect.forEach(instance.layers, (layer) => metrics.layer(images.prepare(layer)), {
    concurrency: 4
  })
  return metrics.phase(model.appId, "layers", withFetchProgress(app, prepared))
}

/** The start of an app that holds the memory for it. */
export const run = Effect.fnUntraced(function* (app: App, instance: DesiredInstance, slot: number) {
  const { host } = app
  const { appId } = app.model
  const { metrics } = host
  yield* Effect.logDebug(`starts deployment ${instance.deploymentId}`)
  yield* countAttempt(app, instance)
  yield* app.progress({ kind: "preparing" })
  const layers = yield* prepareLayers(app, instance)
  const attached = metrics.storage("volume_attach", host.volumes.attach(instance.volumeId))
  const volume = yield* metrics.phase(appId, "volume", attached)
  const link = yield* host.network.attach(slot, guestPorts(instance))
  yield* Effect.logDebug("its layers, volume and link are there")
  const { version, kernel, initramfs, base } = host.guestImage
  const spec = {
    appId,
    slot,
    vcpuCount: instance.config.resources.vcpuCount,
    memoryMib: instance.config.resources.memoryMib,
    image: { version, kernel, initramfs, base },
    layers,
    volume,
    link
  }
  yield* boot(app, spec).pipe(
    Effect.flatMap((booted) => takeUp(app, { ...booted, instance, link })),
    Effect.tapError((error) => Effect.logWarning(error.message)),
    Effect.retry({ times: bootsPerStart - 1, while: (error) => error._tag === "GuestError" })
  )
})

interface Booted {
  readonly machine: Machine
  readonly scope: Scope.Closeable
  readonly session: GuestSession
  readonly instance: DesiredInstance
  readonly link: NetworkLink
}

/** Hands the boot spec over, begins to watch, and waits for the program. A microVM that does not get there is ended. */
const takeUp = (app: App, { machine, scope, session, instance, link }: Booted) =>
  Effect.gen(function* () {
    const startedAt = yield* Clock.currentTimeMillis
    yield* session.handOver(bootSpec(instance, link, startedAt))
    yield* Effect.logDebug("its guest has taken the boot spec")
    yield* app.amend(({ failure: _, lastRestart: __, ...record }) => ({
      ...record,
      instance,
      startedAt,
      restartCount: 0,
      booted: true,
      healthy: false
    }))
    const greeted = Deferred.makeUnsafe<GuestSession>()
    yield* Deferred.succeed(greeted, session)
    const attachment = yield* watch(
      app.host,
      { machine, instance, scope, session: greeted, health: unprobed, startedAt },
      app.post
    )
    yield* app.attach(attachment, unprobed, startedAt)
    yield* untilStarted(app.host, attachment)
  }).pipe(Effect.onExit((exit) => (Exit.isSuccess(exit) ? Effect.void : giveUp(app, machine, scope))))

/** Ends a microVM that may have been taken up already. */
export const giveUp = (app: App, machine: Machine, scope: Scope.Closeable) =>
  Effect.suspend(() => {
    app.model.attachment = undefined
    app.model.health = unprobed
    return discard(app, machine.record, scope)
  })

/** Takes the slot's link down unless the app came up. */
export const detachUnlessUp = <A, E, R>(app: App, slot: number, up: Effect.Effect<A, E, R>) =>
  Effect.onExit(up, (exit) =>
    Exit.isSuccess(exit)
      ? Effect.void
      : Effect.catch(app.host.network.detach(slot), (error) => Effect.logError(error.message))
  )

/** The whole start. Fails with the error whose message is the sentence for the report. */
export const start = (app: App, instance: DesiredInstance, slot: number) =>
  withMemory(app, instance.config.resources.memoryMib, detachUnlessUp(app, slot, run(app, instance, slot)))
