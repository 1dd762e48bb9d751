/**
 * Lets every layer that writes meet a disk that is full: runs on a small tmpfs of its own, `<disk>`, with the
 * artifact store on `<store>`. Writes what came of it as JSON.
 */
import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer, Logger } from "effect"
import { layerSquashfsImages } from "../../layers/images/squashfs.ts"
import { layerFileLogs, logFiles } from "../../layers/logs/file.ts"
import { layerFileReporter } from "../../layers/reporter/file.ts"
import { layerSqliteState } from "../../layers/state/sqlite.ts"
import { layerDirectoryStore } from "../../layers/store/directory.ts"
import { layerLocalFileVolumes } from "../../layers/volume/local-file.ts"
import { AppId, VolumeId } from "../../src/document/schema.ts"
import { AppLogs } from "../../src/services/AppLogs.ts"
import { ArtifactStore } from "../../src/services/ArtifactStore.ts"
import { HostState } from "../../src/services/HostState.ts"
import { LayerImages } from "../../src/services/LayerImages.ts"
import { Reporter } from "../../src/services/Reporter.ts"
import { VolumeBackend } from "../../src/services/VolumeBackend.ts"
import { emptyReport } from "./report.ts"

const [disk = "", storeDirectory = ""] = process.argv.slice(2)
const filler = path.join(disk, "filler")

/** Takes every block that is left. */
const fill = Effect.promise(async () => {
  const handle = await fs.open(filler, "w")
  for (const size of [65536, 4096]) {
    let full = false
    while (!full) {
      full = await handle.write(Buffer.alloc(size, 1)).then(
        ({ bytesWritten }) => bytesWritten < size,
        () => true
      )
    }
  }
  await handle.close()
})
const free = Effect.promise(() => fs.rm(filler, { force: true }))

/** `full` is done on a full disk and must fail, `after` once there is room again. */
const scenario = <A, B>(
  stateDir: string,
  layer: (stateDir: string) => Layer.Layer<A, unknown>,
  before: Effect.Effect<unknown, unknown, A>,
  full: Effect.Effect<unknown, { readonly message: string }, A>,
  after: Effect.Effect<B, unknown, A>,
  left: string
) =>
  Effect.gen(function* () {
    yield* before
    yield* fill
    const error = yield* Effect.flip(full)
    const entries = yield* Effect.promise(() => fs.readdir(path.join(stateDir, left)))
    yield* free
    return { message: error.message, entries: entries.sort(), after: yield* after }
  }).pipe(Effect.provide(layer(stateDir)), Effect.scoped)

const put = (objectKey: string, bytes: Uint8Array) =>
  Effect.promise(async () => {
    await fs.writeFile(path.join(storeDirectory, objectKey), bytes)
    return { objectKey, digest: createHash("sha256").update(bytes).digest("hex") }
  })

const store = (stateDir: string) => layerDirectoryStore({ storeDirectory, stateDir })

const artifacts = Effect.flatMap(put("app", Buffer.alloc(300_000, 7)), (object) => {
  const fetch = ArtifactStore.use((service) => service.fetch(object))
  return scenario(path.join(disk, "a"), store, Effect.void, fetch, fetch, "artifacts")
})

const images = Effect.flatMap(put("program", Buffer.alloc(300_000, 8)), (object) => {
  const prepare = LayerImages.use((service) =>
    service.prepare({ kind: "executable", ...object, destinationPath: "/app" })
  )
  const layer = (stateDir: string) =>
    layerSquashfsImages({ stateDir }).pipe(
      Layer.provideMerge(store(stateDir)),
      Layer.provide(NodeServices.layer)
    )
  const fetched = ArtifactStore.use((service) => service.fetch(object))
  return scenario(path.join(disk, "i"), layer, fetched, prepare, prepare, "layers")
})

const volumes = scenario(
  path.join(disk, "v"),
  (stateDir) => layerLocalFileVolumes({ stateDir }).pipe(Layer.provide(NodeServices.layer)),
  Effect.void,
  VolumeBackend.use((service) => service.provision({ volumeId: VolumeId.make("v"), sizeBytes: 2 ** 24 })),
  VolumeBackend.use((service) =>
    service.provision({ volumeId: VolumeId.make("v"), sizeBytes: 2 ** 24 }).pipe(Effect.andThen(service.list))
  ),
  "volumes"
)

const record = (name: string, slot: number, failure = "") => ({
  appId: AppId.make(name),
  slot,
  attempts: 0,
  restartCount: 0,
  lastRestart: { at: 0, attempt: 1, budget: 1, exit: { code: 1 }, reason: failure, backoffMs: 0 }
})

const state = scenario(
  path.join(disk, "s"),
  (stateDir) => layerSqliteState({ stateDir }),
  HostState.use((service) => service.claimSlot(record("before", 0))),
  HostState.use((service) => service.claimSlot(record("full", 1, "x".repeat(500_000)))),
  HostState.use((service) =>
    service.claimSlot(record("after", 2)).pipe(
      Effect.andThen(service.apps),
      Effect.map((apps) => apps.map((app) => app.appId))
    )
  ),
  "."
)

const reporter = scenario(
  path.join(disk, "r"),
  (stateDir) => layerFileReporter({ stateDir }),
  Reporter.use((service) => service.write(JSON.stringify(emptyReport("before")))),
  Reporter.use((service) => service.write(JSON.stringify(emptyReport("full")))),
  Effect.promise(
    async () => JSON.parse(await fs.readFile(path.join(disk, "r", "reported.json"), "utf8")).message
  ),
  "."
)

const logs = Effect.gen(function* () {
  const stateDir = path.join(disk, "l")
  const said: Array<unknown> = []
  const appId = AppId.make("web")
  yield* Effect.gen(function* () {
    const log = yield* AppLogs.use((service) => service.open(appId, "s"))
    yield* log.note("before")
    yield* fill
    // More than is left of the file's last block.
    yield* log.note("full ".repeat(2000))
    yield* free
    yield* log.note("after")
  }).pipe(
    Effect.provide(layerFileLogs({ stateDir, keepBytes: 2 ** 20 })),
    Effect.provide(Logger.layer([Logger.make(({ message }) => said.push([message].flat().join(" ")))])),
    Effect.scoped
  )
  const text = yield* Effect.promise(() => fs.readFile(logFiles(stateDir, appId)[0], "utf8"))
  return { said, notes: text.split("\n").map((line) => line.split("[nibrun] ")[1] ?? line) }
})

const results = await Effect.runPromise(
  Effect.all({ artifacts, images, volumes, state, reporter, logs }, { concurrency: 1 })
)
process.stdout.write(JSON.stringify(results))
