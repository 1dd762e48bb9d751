/**
 * A daemon for the bench: the real reconciler, document watch, notes and report, over the fake hypervisor. Told a
 * file over IPC, it renames it over its document and answers with the CPU time until the report tells of it.
 */
import { renameSync } from "node:fs"
import { join } from "node:path"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Context, Effect, Layer } from "effect"
import { layerWatchedDocument } from "../../layers/document/watch.ts"
import { layerFileReporter } from "../../layers/reporter/file.ts"
import { layerSqliteState } from "../../layers/state/sqlite.ts"
import { layerAppLogsMemory, makeAppLogsWorld } from "../../layers/testing/AppLogs.ts"
import { layerArtifactStoreMemory, makeArtifactWorld } from "../../layers/testing/ArtifactStore.ts"
import { layerBundleWriterMemory, makeBundleWorld } from "../../layers/testing/BundleWriter.ts"
import { layerExportStoreMemory, makeExportWorld } from "../../layers/testing/ExportStore.ts"
import { makeFakeHost } from "../../layers/testing/FakeHost.ts"
import { layerGuest } from "../../layers/testing/Guest.ts"
import { layerHealthProber } from "../../layers/testing/HealthProber.ts"
import { layerHostInfoMemory, makeHostInfoWorld } from "../../layers/testing/HostInfo.ts"
import { layerHypervisor } from "../../layers/testing/Hypervisor.ts"
import { layerLayerImagesMemory, makeLayerImagesWorld } from "../../layers/testing/LayerImages.ts"
import { layerNetwork } from "../../layers/testing/Network.ts"
import { layerProxyMemory, makeProxyWorld } from "../../layers/testing/Proxy.ts"
import { layerVolumeBackendMemory, makeVolumeWorld } from "../../layers/testing/VolumeBackend.ts"
import { runHost } from "../../src/reconcile/host.ts"
import { HostSettings } from "../../src/reconcile/settings.ts"
import { GuestImage } from "../../src/services/GuestImage.ts"
import { Reporter } from "../../src/services/Reporter.ts"

/** What the daemon is told: take this file as the document; it has this digest. */
export interface Order {
  readonly file: string
  readonly digest: string
  /** Answer only when every app is up. */
  readonly settled: boolean
}

/** The other thing that it may be told: put this file in place, which holds what the document holds already. */
export interface Reread {
  readonly same: string
}

/** The last thing: answer with what is resident once the daemon has been at rest. */
export interface Rest {
  readonly restMs: number
}

/** CPU milliseconds of a span in which the unchanged document was read again, and of one as long in which it was not. */
export interface RereadAnswer {
  readonly rereadMs: number
  readonly quietMs: number
}

/** Long enough for the file to be noticed, read and compared. */
const SPAN_MS = 500

/** What it answers: CPU milliseconds from the rename to the report, and its resident memory. */
export interface Answer {
  readonly cpuMs: number
  readonly rssMib: number
}

const stateDir = process.argv[2] ?? ""
const document = join(stateDir, "desired.json")

let wanted: { readonly digest: string; readonly done: (text: string) => void } | undefined

/** The real reporter; the bench hears of each report that is on the disk. */
const listening = Layer.effect(
  Reporter,
  Effect.map(Reporter, (reporter) => ({
    write: (text: string) =>
      Effect.tap(reporter.write(text), () =>
        Effect.sync(() => {
          if (wanted !== undefined && text.includes(wanted.digest)) wanted.done(text)
        })
      )
  }))
).pipe(Layer.provide(layerFileReporter({ stateDir })))

const proxy = makeProxyWorld()
let steps: Array<unknown> = []

/** What the testing layers note for tests is no part of a host. */
const forgetNotes = () => {
  steps.length = 0
  proxy.changes.length = 0
}

const services = Layer.unwrap(
  Effect.map(makeFakeHost, (machine) => {
    steps = machine.calls as Array<unknown>
    return Layer.mergeAll(
      layerHypervisor(machine),
      layerGuest(machine),
      layerNetwork(machine),
      layerHealthProber(machine),
      layerWatchedDocument({ path: document }),
      layerSqliteState({ stateDir }),
      listening,
      layerVolumeBackendMemory(makeVolumeWorld()),
      layerLayerImagesMemory(makeLayerImagesWorld()),
      layerArtifactStoreMemory(makeArtifactWorld()),
      layerExportStoreMemory(makeExportWorld()),
      layerBundleWriterMemory(makeBundleWorld()),
      layerAppLogsMemory(makeAppLogsWorld()),
      layerProxyMemory(proxy),
      layerHostInfoMemory(makeHostInfoWorld({ memoryMib: 4 * 2 ** 20 })),
      Layer.succeedContext(
        Context.make(GuestImage, {
          version: "bench",
          kernel: "/memory/kernel",
          initramfs: "/memory/initramfs",
          base: "/memory/base",
          tscProbe: "/memory/tsc",
          jail: "/memory/jail",
          nbdRelay: "/memory/nbd-relay",
          volumeBundle: "/memory/volume-bundle"
        }).pipe(
          Context.add(HostSettings, {
            maxApps: 5567,
            maxConcurrentVmStarts: undefined,
            reservedMemoryMib: 640,
            servesHttp: true,
            rawPortsPerGuest: 7,
            snapshotDir: "/memory/snapshots",
            hasExportStore: true,
            storagePrefix: "volumes",
            guestHelloTimeoutMs: 60_000,
            versions: { agent: "bench", zerofs: "none", firecracker: "none" }
          })
        )
      )
    )
  })
)

const converge = (order: Order) => {
  const before = process.cpuUsage()
  wanted = {
    digest: order.digest,
    done: (text) => {
      const { user, system } = process.cpuUsage(before)
      if (order.settled && !/^(?!.*"state":"(?:pending|starting|stopping)")/su.test(text)) return
      wanted = undefined
      forgetNotes()
      const answer: Answer = { cpuMs: (user + system) / 1000, rssMib: process.memoryUsage().rss / 2 ** 20 }
      process.send?.(answer)
    }
  }
  renameSync(order.file, document)
}

/** Calls back with the CPU milliseconds of the span that begins now. */
const span = (done: (ms: number) => void) => {
  const before = process.cpuUsage()
  setTimeout(() => {
    const { user, system } = process.cpuUsage(before)
    done((user + system) / 1000)
  }, SPAN_MS)
}

const reread = ({ same }: Reread) =>
  span((quietMs) => {
    renameSync(same, document)
    span((rereadMs) => {
      const answer: RereadAnswer = { rereadMs, quietMs }
      process.send?.(answer)
    })
  })

const rest = ({ restMs }: Rest) =>
  setTimeout(() => process.send?.({ rssMib: process.memoryUsage().rss / 2 ** 20 }), restMs)

process.on("message", (told: Order | Reread | Rest) => {
  if ("same" in told) reread(told)
  else if ("restMs" in told) rest(told)
  else converge(told)
})

NodeRuntime.runMain(runHost.pipe(Effect.provide(services), Effect.scoped, Effect.provide(NodeServices.layer)))
