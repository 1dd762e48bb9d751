import * as NodeServices from "@effect/platform-node/NodeServices"
import { describe } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { layerTapNetwork } from "../../layers/network/tap/layer.ts"
import { DEFAULT_ID_RANGE, vmmIdentity } from "../../src/hypervisor/identity.ts"
import { networkConformance } from "../conformance/network.ts"
import { inOwnNamespace } from "./own-namespace.ts"

describe.skipIf(!inOwnNamespace)("taps", () => {
  networkConformance(
    "a tap for each guest",
    Effect.sync(() =>
      layerTapNetwork({
        denied: [],
        forwardedOn: "any",
        owner: (slot) => vmmIdentity(DEFAULT_ID_RANGE.base, slot).uid
      }).pipe(Layer.provide(NodeServices.layer))
    )
  )
})
