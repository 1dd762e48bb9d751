/** The least memory that an instance may have is enough for a guest with the most layers, and less is refused before anything is tried. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { MAX_LAYERS } from "../../src/document/schema.ts"
import { SMALLEST_MEMORY_MIB } from "../../src/reconcile/unrunnable.ts"
import { awaitState, documentOf, instance, put, request, startHost } from "./harness.ts"

layer(NodeServices.layer, { excludeTestServices: true })("an app with the least memory", (it) => {
  it.effect(
    "boots with the most layers and serves; one with less fails at once, by name, and no microVM is started for it",
    () =>
      Effect.gen(function* () {
        const { host, tenant } = yield* startHost()
        const layers = Array.from({ length: MAX_LAYERS }, (_, n) =>
          n === 0 ? tenant : { ...tenant, destinationPath: `/app/layer-${n}` }
        )
        const once = { restartPolicy: { maxRestarts: 0 } }
        yield* put(
          host,
          documentOf(
            instance("less", tenant, { ...once, memoryMib: SMALLEST_MEMORY_MIB - 1 }),
            instance("least", tenant, { ...once, layers, memoryMib: SMALLEST_MEMORY_MIB })
          )
        )
        const less = yield* awaitState(host, "less", "failed")
        assert.match(less.message ?? "", /^config\.resources\.memoryMib is 95: .*at least 96 MiB/u)
        yield* awaitState(host, "least", "running")
        assert.strictEqual((yield* request(host, "least")).status, 200)
        assert.isFalse(existsSync(join(host.logs, "less.log")))
        assert.isUndefined((yield* awaitState(host, "less", "failed")).hostPort)
      })
  )
})
