/** Which network a configuration asks for, and which one a machine can give where it asks for none. */
import { Effect, Layer } from "effect"
import type { HostConfig } from "../../src/config/schema.ts"
import { vmmIdentity } from "../../src/hypervisor/identity.ts"
import { forwardedOn } from "../../src/network/forwarded-on.ts"
import { idRange } from "../hypervisor/qemu/identity.ts"
import { checkFitness } from "./tap/fitness.ts"
import { layerTapNetwork } from "./tap/layer.ts"
import { layerUserNetwork } from "./user.ts"

const taps = (config: HostConfig) =>
  Effect.map(idRange, ({ base }) =>
    layerTapNetwork({
      denied: config.network?.denied_egress_addresses_v4 ?? [],
      forwardedOn: forwardedOn(config.proxy?.raw?.listen_address),
      owner: (slot) => vmmIdentity(base, slot).uid
    })
  )

/** The network of a host: as configured, else taps where this machine lets the daemon have them. */
export const layerNetwork = (config: HostConfig) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const asked = config.hypervisor?.network
      if (asked === "user") return layerUserNetwork
      if (asked === "tap") return yield* taps(config)
      const lacking = yield* checkFitness.pipe(
        Effect.as(undefined),
        Effect.catch(({ reason }) => Effect.succeed(reason))
      )
      if (lacking === undefined) return yield* taps(config)
      yield* Effect.logWarning(`guests have no way out, because this host has no taps: ${lacking}`)
      return layerUserNetwork
    })
  )
