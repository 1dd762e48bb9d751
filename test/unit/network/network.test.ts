import { Effect } from "effect"
import { layerUserNetwork } from "../../../layers/network/user.ts"
import { makeFakeHost } from "../../../layers/testing/FakeHost.ts"
import { layerNetwork } from "../../../layers/testing/Network.ts"
import { networkConformance } from "../../conformance/network.ts"

networkConformance("QEMU's user network", Effect.succeed(layerUserNetwork))
networkConformance("the fake", Effect.map(makeFakeHost, layerNetwork))
