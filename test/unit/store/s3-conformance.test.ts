import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect } from "effect"
import { layerS3Artifacts, layerS3Exports } from "../../../layers/store/s3/layer.ts"
import { artifactStoreConformance } from "../../conformance/artifact-store.ts"
import { exportStoreConformance } from "../../conformance/export-store.ts"
import { sharedS3Server } from "../../support/shared-s3.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const server = sharedS3Server()
const PREFIX = "hosts/one/"

artifactStoreConformance(
  "a bucket",
  Effect.gen(function* () {
    const stateDir = yield* temporaryDirectory
    const bucket = yield* Effect.flatMap(server, (running) => running.bucket)
    return {
      layer: layerS3Artifacts({ settings: bucket.settings({ prefix: PREFIX }), stateDir }),
      put: (objectKey, bytes) =>
        Effect.as(bucket.put(PREFIX + objectKey, bytes), {
          objectKey,
          digest: createHash("sha256").update(bytes).digest("hex")
        }),
      remove: (objectKey) => bucket.remove(PREFIX + objectKey),
      read: (file) => Effect.promise(() => fs.readFile(path.resolve(file)))
    }
  })
)

exportStoreConformance(
  "a bucket",
  Effect.gen(function* () {
    const bucket = yield* Effect.flatMap(server, (running) => running.bucket)
    return {
      layer: layerS3Exports(bucket.settings({ prefix: PREFIX })),
      read: (objectKey) =>
        Effect.flatMap(bucket.keys, (keys) =>
          keys.includes(PREFIX + objectKey) ? bucket.get(PREFIX + objectKey) : Effect.undefined
        ),
      leftovers: bucket.uploads,
      impossible: ["a\0b", "é".repeat(512)]
    }
  })
)
