import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect } from "effect"
import { layerDirectoryExports } from "../../../layers/store/directory-exports.ts"
import { layerExportStoreMemory, makeExportWorld } from "../../../layers/testing/ExportStore.ts"
import { exportStoreConformance } from "../../conformance/export-store.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

exportStoreConformance(
  "the store in memory",
  Effect.sync(() => {
    const world = makeExportWorld()
    return {
      layer: layerExportStoreMemory(world),
      read: (objectKey) => Effect.sync(() => world.objects.get(objectKey)),
      leftovers: Effect.succeed([]),
      impossible: []
    }
  })
)

exportStoreConformance(
  "a directory",
  Effect.gen(function* () {
    const root = yield* temporaryDirectory
    const storeDirectory = path.join(root, "store")
    yield* Effect.promise(() => fs.mkdir(path.join(storeDirectory, "folder"), { recursive: true }))
    return {
      layer: layerDirectoryExports({ storeDirectory, stateDir: path.join(root, "state") }),
      read: (objectKey) =>
        Effect.promise(() => fs.readFile(path.join(storeDirectory, objectKey)).catch(() => undefined)),
      leftovers: Effect.map(
        Effect.promise(() => fs.readdir(storeDirectory, { recursive: true })),
        (names) => names.filter((name) => path.basename(name).startsWith("."))
      ),
      impossible: [
        "..",
        "../outside",
        "a/../../outside",
        "/etc/outside",
        "a//b",
        "./a",
        "a/",
        "a\0b",
        "folder",
        "é".repeat(1024),
        ".nibrunner-storing-1"
      ]
    }
  })
)
