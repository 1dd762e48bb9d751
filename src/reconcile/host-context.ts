/** What every app's fiber shares: the services, the host-wide limits, and the place where states are published. */
import { Deferred, Effect, Semaphore } from "effect"
import type { AppId, VolumeId } from "../document/schema.ts"
import { type HostMetrics, makeHostMetrics } from "../metrics/host-metrics.ts"
import { AppLogs } from "../services/AppLogs.ts"
import { ArtifactStore } from "../services/ArtifactStore.ts"
import { Guest } from "../services/Guest.ts"
import { GuestImage } from "../services/GuestImage.ts"
import { HealthProber } from "../services/HealthProber.ts"
import { HostInfo } from "../services/HostInfo.ts"
import { type AppRecord, HostState, type HostStateError } from "../services/HostState.ts"
import { Hypervisor } from "../services/Hypervisor.ts"
import { LayerImages } from "../services/LayerImages.ts"
import { Network } from "../services/Network.ts"
import { Proxy } from "../services/Proxy.ts"
import { VolumeBackend } from "../services/VolumeBackend.ts"
import { Activity } from "./activity.ts"
import { Measurements } from "./measurements.ts"
import type { Turns } from "./measuring.ts"
import { type MemoryLedger, makeMemoryLedger } from "./memory.ts"
import { type HostLimits, limitsOf } from "./refusal.ts"
import { HostSettings } from "./settings.ts"
import { nextSlot } from "./slots.ts"
import { type AppStatus, sameStatus } from "./status.ts"
import { VolumeUsers } from "./volume-users.ts"

/** Every service that the reconciler asks, taken once. */
const services = Effect.all({
  hypervisor: Hypervisor,
  guest: Guest,
  network: Network,
  prober: HealthProber,
  volumes: VolumeBackend,
  images: LayerImages,
  artifacts: ArtifactStore,
  guestImage: GuestImage,
  state: HostState,
  proxy: Proxy,
  logs: AppLogs,
  info: HostInfo,
  settings: HostSettings
})

export type HostServices = Effect.Success<typeof services>

export interface HostContext extends HostServices {
  readonly limits: HostLimits
  /** What is counted on the way, for the metrics page. */
  readonly metrics: HostMetrics
  readonly memory: MemoryLedger
  /** What is known of what each app uses. */
  readonly measurements: Measurements
  /** When each guest is measured next. */
  readonly turns: Turns
  /** What comes for the apps that are up. */
  readonly activity: Activity
  /** Done once the snapshots that an earlier daemon left are looked through. */
  readonly maySleep: Deferred.Deferred<void>
  /** Puts an app to sleep when its turn has come: their memory goes to the same disk. `failed`: its last sleep has. */
  readonly withSleepPermit: <A, E, R>(
    failed: boolean,
    sleep: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E, R>
  /** Runs a boot when `max_concurrent_vm_starts` allows it; `onWait` is told the limit when it does not yet. */
  readonly withStartPermit: <A, E, R>(
    boot: Effect.Effect<A, E, R>,
    onWait: (limit: number) => Effect.Effect<void>
  ) => Effect.Effect<A, E, R>
  /** Gives the app a slot and writes its first record; none when all `max_apps` are taken. */
  readonly claimSlot: (appId: AppId) => Effect.Effect<AppRecord | undefined, HostStateError>
  /** Deletes the app's record and gives its slot back. */
  readonly releaseSlot: (appId: AppId) => Effect.Effect<void, HostStateError>
  /** Which app the newest document gives each hostname to: an app that is behind it must not take another's. */
  readonly hostnameOwners: Map<string, AppId>
  /** Which app each volume that exists belongs to; it never changes hands. */
  readonly volumeOwners: Map<VolumeId, AppId>
  /** What keeps volumes from being read and written now; changed by the host alone, which then has every app look again. */
  volumeTrouble: string | undefined
  /** What is said of directories that were taken from under the daemon; looked at before each report, by its writer. */
  lostDirectories: ReadonlyArray<string>
  /** Who may write to each volume now. */
  readonly volumeUsers: VolumeUsers
  readonly publish: (status: AppStatus) => Effect.Effect<void>
  readonly withdraw: (appId: AppId) => Effect.Effect<void>
  readonly statuses: ReadonlyMap<AppId, AppStatus>
}

/**
 * A guest that does not answer keeps its turn for some seconds. So those whose last sleep has failed take turns of their
 * own: however many they are, they keep the others from nothing.
 */
const sleepsAtOnce = { usual: 2, failed: 1 }

const sleepPermits = (): HostContext["withSleepPermit"] => {
  const usual = Semaphore.makeUnsafe(sleepsAtOnce.usual)
  const after = Semaphore.makeUnsafe(sleepsAtOnce.failed)
  return (failed, sleep) => (failed ? after : usual).withPermits(1)(sleep)
}

const startPermits = (limit: number | undefined): HostContext["withStartPermit"] => {
  if (limit === undefined) return (boot) => boot
  const permits = Semaphore.makeUnsafe(limit)
  let taken = 0
  return (boot, onWait) =>
    Effect.suspend(() => (taken >= limit ? onWait(limit) : Effect.void)).pipe(
      Effect.andThen(
        permits.withPermits(1)(
          Effect.suspend(() => {
            taken++
            return Effect.ensuring(
              boot,
              Effect.sync(() => {
                taken--
              })
            )
          })
        )
      )
    )
}

/** @param onChange run whenever a published state differs from the one before */
export const makeHostContext = Effect.fnUntraced(function* (onChange: Effect.Effect<void>) {
  const all = yield* services
  const limits = limitsOf(all.info, all.settings)
  const slots = yield* Semaphore.make(1)
  const metrics = yield* makeHostMetrics
  const statuses = new Map<AppId, AppStatus>()

  // Read once: from then on slots are given and taken back here alone.
  const taken = new Map((yield* all.state.apps).map(({ appId, slot }) => [appId, slot] as const))
  let cursor = yield* all.state.slotCursor

  const claimSlot = (appId: AppId) =>
    slots.withPermits(1)(
      Effect.gen(function* () {
        const slot = nextSlot(cursor, new Set(taken.values()), all.settings.maxApps)
        if (slot === undefined) return undefined
        const record: AppRecord = { appId, slot, attempts: 0, restartCount: 0 }
        yield* all.state.claimSlot(record)
        taken.set(appId, slot)
        cursor = slot
        return record
      })
    )

  const releaseSlot = (appId: AppId) =>
    slots.withPermits(1)(Effect.tap(all.state.deleteApp(appId), () => Effect.sync(() => taken.delete(appId))))

  const context: HostContext = {
    ...all,
    limits,
    metrics,
    memory: makeMemoryLedger(limits.memoryMib),
    measurements: new Measurements(),
    turns: new Map(),
    activity: new Activity(),
    maySleep: Deferred.makeUnsafe(),
    withSleepPermit: sleepPermits(),
    withStartPermit: startPermits(all.settings.maxConcurrentVmStarts),
    claimSlot,
    releaseSlot,
    hostnameOwners: new Map(),
    volumeUsers: new VolumeUsers(),
    volumeTrouble: undefined,
    lostDirectories: [],
    volumeOwners: new Map((yield* all.state.volumes).map(({ volumeId, appId }) => [volumeId, appId])),
    publish: (status) =>
      Effect.suspend(() => {
        const before = statuses.get(status.appId)
        if (before !== undefined && sameStatus(before, status)) {
          if (before.instance?.lastHealthyAt !== status.instance?.lastHealthyAt)
            statuses.set(status.appId, status)
          return Effect.void
        }
        statuses.set(status.appId, status)
        return onChange
      }),
    withdraw: (appId) => Effect.suspend(() => (statuses.delete(appId) ? onChange : Effect.void)),
    statuses
  }
  return context
})
