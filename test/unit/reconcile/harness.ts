/** A whole host in memory: the real reconciler over the testing layers, on a clock that the test moves. */
import { assert } from "@effect/vitest"
import { Effect, Exit, type Fiber, Layer, Scope } from "effect"
import { TestClock } from "effect/testing"
import { layerAppLogsMemory, makeAppLogsWorld } from "../../../layers/testing/AppLogs.ts"
import { layerArtifactStoreMemory, makeArtifactWorld } from "../../../layers/testing/ArtifactStore.ts"
import { layerBundleWriterMemory, makeBundleWorld } from "../../../layers/testing/BundleWriter.ts"
import {
  layerDocumentSourceMemory,
  makeDocumentWorld,
  putDocument
} from "../../../layers/testing/DocumentSource.ts"
import { layerExportStoreMemory, makeExportWorld } from "../../../layers/testing/ExportStore.ts"
import { makeFakeHost } from "../../../layers/testing/FakeHost.ts"
import { layerGuest } from "../../../layers/testing/Guest.ts"
import { layerHealthProber } from "../../../layers/testing/HealthProber.ts"
import {
  type HostInfoWorld,
  layerHostInfoMemory,
  makeHostInfoWorld
} from "../../../layers/testing/HostInfo.ts"
import { layerHostStateMemory, makeHostStateWorld } from "../../../layers/testing/HostState.ts"
import { layerHypervisor } from "../../../layers/testing/Hypervisor.ts"
import { layerLayerImagesMemory, makeLayerImagesWorld } from "../../../layers/testing/LayerImages.ts"
import {
  layerMetricsPageMemory,
  makeMetricsPageWorld,
  readPage
} from "../../../layers/testing/MetricsPage.ts"
import { layerNetwork } from "../../../layers/testing/Network.ts"
import { layerProxyMemory, makeProxyWorld } from "../../../layers/testing/Proxy.ts"
import { layerReporterMemory, makeReporterWorld } from "../../../layers/testing/Reporter.ts"
import { layerVolumeBackendMemory, makeVolumeWorld } from "../../../layers/testing/VolumeBackend.ts"
import { Histogram } from "../../../src/metrics/instruments.ts"
import { runHost } from "../../../src/reconcile/host.ts"
import { HostSettings } from "../../../src/reconcile/settings.ts"
import type { HostReport, InstanceReport } from "../../../src/report/schema.ts"
import { GuestImage } from "../../../src/services/GuestImage.ts"
import { type AppRoute, Proxy, type ProxyTraffic, REQUEST_BOUNDS } from "../../../src/services/Proxy.ts"
import { running } from "./documents.ts"

export interface HostOptions {
  readonly machine?: Partial<HostInfoWorld>
  readonly settings?: Partial<HostSettings["Service"]>
  /** Volumes of which no checkpoints can be cut. */
  readonly volumesAreFiles?: boolean
}

const settings: HostSettings["Service"] = {
  maxApps: 16,
  maxConcurrentVmStarts: undefined,
  reservedMemoryMib: 640,
  servesHttp: true,
  rawPortsPerGuest: 7,
  hasExportStore: true,
  storagePrefix: "host-1",
  snapshotDir: "/memory/snapshots",
  guestHelloTimeoutMs: 30_000,
  versions: { agent: "test", zerofs: "none", firecracker: "none" }
}

const image = Layer.succeed(GuestImage, {
  version: "image-1",
  kernel: "/memory/kernel",
  initramfs: "/memory/initramfs",
  base: "/memory/base",
  tscProbe: "/memory/tsc-khz",
  jail: "/memory/jail",
  nbdRelay: "/memory/nbd-relay",
  volumeBundle: "/memory/volume-bundle"
})

/** What a proxy has counted that nobody has asked anything. */
export const noTraffic: ProxyTraffic = {
  outcomes: { served: 0, noSuchHost: 0, wrongHost: 0, refused: 0, unreachable: 0 },
  requestSeconds: new Histogram(REQUEST_BOUNDS).distributionOf(""),
  handshakes: { completed: 0, failed: 0, timedOut: 0 },
  joinedWakes: 0,
  apps: new Map()
}

/** Everything that outlives a daemon, and the daemon's life and death. The daemon that is there at the test's end is told to end. */
export const makeHost = Effect.fnUntraced(function* (options: HostOptions = {}) {
  const machine = yield* makeFakeHost
  const source = makeDocumentWorld()
  const state = makeHostStateWorld()
  const volumes = makeVolumeWorld()
  const images = makeLayerImagesWorld()
  const artifacts = makeArtifactWorld()
  const exported = makeExportWorld()
  const bundles = makeBundleWorld()
  const logs = makeAppLogsWorld()
  const reporter = makeReporterWorld()
  const proxyWorld = makeProxyWorld()
  const routes: ReadonlyMap<string, AppRoute> = proxyWorld.routes
  const page = makeMetricsPageWorld()
  const proxied: { traffic: ProxyTraffic } = { traffic: noTraffic }

  /** Forgets with each daemon what it routed, and counts what a test has not made up. */
  const proxy = Layer.unwrap(
    Effect.sync(() => {
      proxyWorld.routes.clear()
      return Layer.effect(
        Proxy,
        Effect.map(Proxy, (memory) =>
          Proxy.of({
            ...memory,
            traffic: Effect.suspend(() =>
              proxied.traffic === noTraffic ? memory.traffic : Effect.succeed(proxied.traffic)
            )
          })
        )
      ).pipe(Layer.provide(layerProxyMemory(proxyWorld)))
    })
  )

  const layers = () =>
    Layer.mergeAll(
      layerHypervisor(machine),
      layerGuest(machine),
      layerNetwork(machine),
      layerHealthProber(machine),
      layerDocumentSourceMemory(source),
      layerHostStateMemory(state),
      layerVolumeBackendMemory(volumes, { checkpoints: options.volumesAreFiles !== true }),
      layerLayerImagesMemory(images),
      layerArtifactStoreMemory(artifacts),
      layerExportStoreMemory(exported),
      layerBundleWriterMemory(bundles),
      layerAppLogsMemory(logs),
      layerReporterMemory(reporter),
      layerMetricsPageMemory(page),
      layerHostInfoMemory(makeHostInfoWorld(options.machine)),
      proxy,
      image,
      Layer.succeed(HostSettings, { ...settings, ...options.settings })
    )

  let daemon: { readonly fiber: Fiber.Fiber<unknown, unknown>; readonly scope: Scope.Closeable } | undefined

  const start = Effect.fnUntraced(function* () {
    const scope = yield* Scope.make()
    const fiber = yield* runHost.pipe(Effect.provide(layers()), Effect.forkIn(scope))
    daemon = { fiber, scope }
  })

  /** The daemon is told to end and does, in order. */
  const stop = Effect.fnUntraced(function* () {
    if (daemon !== undefined) yield* Scope.close(daemon.scope, Exit.void)
    daemon = undefined
  })
  yield* Effect.addFinalizer(stop)

  /** The daemon dies on the spot: nothing that it began is cleaned up. */
  const crash = Effect.fnUntraced(function* () {
    yield* machine.crash
    yield* stop()
  })

  const report = (): HostReport | undefined => reporter.reports.at(-1)
  const instanceOf = (appId: string): InstanceReport | undefined =>
    report()?.instances.find((instance) => instance.appId === appId)

  /** Moves the clock until the condition holds; fails, with the report, when it does not within the time. */
  const until = Effect.fnUntraced(function* (what: string, condition: () => boolean, withinMs = 120_000) {
    for (let waited = 0; waited <= withinMs; waited += 50) {
      if (condition()) return
      if (daemon !== undefined && daemon.fiber.pollUnsafe() !== undefined) {
        assert.fail(
          `the daemon ended while a test waited until ${what}: ${String(daemon.fiber.pollUnsafe())}`
        )
      }
      yield* TestClock.adjust(50)
    }
    assert.fail(`not within ${withinMs} ms: ${what}\n${JSON.stringify(report(), null, 1)}`)
  })

  const put = (document: unknown) => putDocument(source, document)
  const untilState = (appId: string, state: InstanceReport["state"]) =>
    until(`${appId} is ${state}`, () => instanceOf(appId)?.state === state)
  const untilRunning = (...appIds: ReadonlyArray<string>) =>
    Effect.forEach(appIds, (appId) => untilState(appId, "running"), { discard: true })

  return {
    machine,
    source,
    state,
    volumes,
    images,
    artifacts,
    exported,
    bundles,
    logs,
    reporter,
    routes,
    proxy: proxyWorld,
    /** Every change of a route, oldest first. */
    routeLog: proxyWorld.changes,
    proxied,
    /** The metrics page, as Prometheus would get it now. */
    metrics: readPage(page),
    start,
    stop,
    crash,
    report,
    instanceOf,
    until,
    put,
    untilState,
    untilRunning,
    /** Waits until the app is up under this deployment. */
    untilDeployed: (appId: string, deploymentId: string) =>
      until(
        `${deploymentId} of ${appId} runs`,
        () => instanceOf(appId)?.deploymentId === deploymentId && instanceOf(appId)?.state === "running"
      ),
    /** Puts a document that runs these apps and no other, and waits until all of them are up. */
    run: (...appIds: ReadonlyArray<string>) =>
      Effect.andThen(put(running(...appIds)), untilRunning(...appIds))
  }
})

export type Host = Effect.Success<ReturnType<typeof makeHost>>

/** A host with a daemon that has no document yet. */
export const startHost = (options?: HostOptions) => Effect.tap(makeHost(options), (host) => host.start())

/** A host on which these apps are up. */
export const hostRunning = (...appIds: ReadonlyArray<string>) =>
  Effect.tap(startHost(), (host) => host.run(...appIds))
