import { Effect } from "effect"
import { volumeBackendConformance } from "../../conformance/volume-backend.ts"
import { zerofsHost } from "../../support/zerofs/host.ts"

volumeBackendConformance(
  "ZeroFS",
  Effect.gen(function* () {
    const host = yield* zerofsHost
    yield* host.zerofs.start
    return {
      layer: host.layer,
      formatting: host.uuid,
      size: host.size,
      formattingAt: ({ socketPath, exportName }) => host.uuidAt(socketPath, exportName)
    }
  })
)
