import { describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { documentOf, rawInstance } from "./documents.ts"
import { makeHost } from "./harness.ts"

describe("memory that the document asks for", () => {
  it.effect("is not kept for an instance that this host refuses: the next one starts", () =>
    Effect.gen(function* () {
      const host = yield* makeHost({ machine: { memoryMib: 640 + 600 }, settings: { rawPortsPerGuest: 0 } })
      const resources = { vcpuCount: 1, memoryMib: 500 }
      yield* host.start()
      yield* host.put(
        documentOf(
          rawInstance("app-1", { config: { resources, ports: [{ name: "game", guestPort: 4000 }] } }),
          rawInstance("app-2", { config: { resources } })
        )
      )
      yield* host.untilState("app-1", "failed")
      yield* host.untilState("app-2", "running")
    })
  )
})
