/** Writes a volume's bundle into a store in a process of its own: image directory, socket, export, store. Says what it took. */
import { readdirSync, readFileSync } from "node:fs"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { layerBundleProgram } from "../../layers/export/program.ts"
import { layerVerifiedGuestImage } from "../../layers/guest-image/verified.ts"
import { layerDirectoryExports } from "../../layers/store/directory-exports.ts"
import { BundleWriter } from "../../src/services/BundleWriter.ts"
import { ExportStore } from "../../src/services/ExportStore.ts"

const [image = "", socketPath = "", exportName = "", storeDirectory = "", stateDir = ""] =
  process.argv.slice(2)

/** MiB; 0 for a process that is gone. */
const memory = (pid: number | "self", field: "VmRSS" | "VmHWM"): number => {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8")
    return Number(new RegExp(`${field}:\\s+(\\d+) kB`, "u").exec(status)?.[1] ?? 0) / 1024
  } catch {
    return 0
  }
}

/** The processes that this one has started, and that those have. */
const descendants = (): ReadonlyArray<number> => {
  const found = new Set([process.pid])
  for (let before = 0; before < found.size; ) {
    before = found.size
    for (const name of readdirSync("/proc").filter((entry) => /^\d+$/u.test(entry))) {
      try {
        const [, parent] = /^\d+ \(.*\) . (\d+)/su.exec(readFileSync(`/proc/${name}/stat`, "utf8")) ?? []
        if (found.has(Number(parent))) found.add(Number(name))
      } catch {
        // it has ended meanwhile
      }
    }
  }
  found.delete(process.pid)
  return [...found]
}

const peaks = new Map<number, number>()
const watching = Effect.forever(
  Effect.andThen(
    Effect.sync(() => {
      for (const pid of descendants()) peaks.set(pid, Math.max(peaks.get(pid) ?? 0, memory(pid, "VmHWM")))
    }),
    Effect.sleep("500 millis")
  )
)

const main = Effect.gen(function* () {
  const bundles = yield* BundleWriter
  const store = yield* ExportStore
  const idle = memory("self", "VmRSS")
  yield* Effect.forkScoped(watching)
  const started = performance.now()
  const bundle = yield* bundles.open({
    volume: { kind: "nbd", socketPath, exportName },
    environment: "A='b'\n",
    at: Date.now()
  })
  const { sizeBytes } = yield* store.put("bundle.tar.gz", bundle.contents, {
    expectedBytes: bundle.usedBytes
  })
  const seconds = (performance.now() - started) / 1000
  const children = [...peaks.values()].reduce((sum, peak) => sum + peak, 0)
  const answer = { seconds, sizeBytes, idle, peak: memory("self", "VmHWM"), children }
  yield* Effect.sync(() => console.log(JSON.stringify(answer)))
}).pipe(Effect.scoped)

await Effect.runPromise(
  main.pipe(
    Effect.provide(
      Layer.mergeAll(
        layerBundleProgram.pipe(Layer.provide(layerVerifiedGuestImage(image))),
        layerDirectoryExports({ storeDirectory, stateDir })
      ).pipe(Layer.provide(NodeServices.layer))
    )
  )
)
