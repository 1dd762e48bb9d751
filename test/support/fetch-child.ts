/** Fetches one object in a process of its own: store, state directory, key, digest. */
import { Effect } from "effect"
import { layerDirectoryStore } from "../../layers/store/directory.ts"
import { ArtifactStore } from "../../src/services/ArtifactStore.ts"

const [storeDirectory = "", stateDir = "", objectKey = "", digest = ""] = process.argv.slice(2)
await Effect.runPromise(
  ArtifactStore.use((store) => store.fetch({ objectKey, digest })).pipe(
    Effect.provide(layerDirectoryStore({ storeDirectory, stateDir }))
  )
)
