import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect } from "effect"
import { layerDirectoryStore } from "../../../layers/store/directory.ts"
import {
  layerArtifactStoreMemory,
  makeArtifactWorld,
  putObject
} from "../../../layers/testing/ArtifactStore.ts"
import { artifactStoreConformance } from "../../conformance/artifact-store.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

artifactStoreConformance(
  "the store in memory",
  Effect.sync(() => {
    const world = makeArtifactWorld()
    return {
      layer: layerArtifactStoreMemory(world),
      put: (objectKey, bytes) => Effect.sync(() => putObject(world, objectKey, bytes)),
      remove: (objectKey) => Effect.sync(() => world.objects.delete(objectKey)),
      read: (file) => Effect.sync(() => world.files.get(file) ?? new Uint8Array(0))
    }
  })
)

artifactStoreConformance(
  "a directory",
  Effect.map(temporaryDirectory, (root) => {
    const storeDirectory = path.join(root, "store")
    const fileOf = (objectKey: string) => path.join(storeDirectory, objectKey)
    return {
      layer: layerDirectoryStore({ storeDirectory, stateDir: path.join(root, "state") }),
      put: (objectKey, bytes) =>
        Effect.promise(async () => {
          await fs.mkdir(path.dirname(fileOf(objectKey)), { recursive: true })
          await fs.writeFile(fileOf(objectKey), bytes)
          return { objectKey, digest: createHash("sha256").update(bytes).digest("hex") }
        }),
      remove: (objectKey) => Effect.promise(() => fs.rm(fileOf(objectKey))),
      read: (file) => Effect.promise(() => fs.readFile(file))
    }
  })
)
