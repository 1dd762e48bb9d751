/** A host with taps in a namespace that the tests have to themselves. */
import { execFileSync } from "node:child_process"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { type Duration, Effect, Exit, Layer, Scope } from "effect"
import { layerTapNetwork, type TapOptions } from "../../../layers/network/tap/layer.ts"
import { DEFAULT_ID_RANGE, vmmIdentity } from "../../../src/hypervisor/identity.ts"
import { tapName } from "../../../src/network/tap-link.ts"
import { Network } from "../../../src/services/Network.ts"

export const tapNetwork = (options: Partial<TapOptions> = {}) =>
  layerTapNetwork({
    denied: [],
    forwardedOn: "any",
    owner: (slot) => vmmIdentity(DEFAULT_ID_RANGE.base, slot).uid,
    ...options
  }).pipe(Layer.provide(NodeServices.layer))

/** A daemon's network, until it is let go of: taps and rules stay then, as when a daemon ends. */
export const openNetwork = Effect.fnUntraced(function* (options: Partial<TapOptions> = {}) {
  const scope = yield* Scope.fork(yield* Effect.scope)
  const context = yield* Layer.buildWithScope(tapNetwork(options), scope)
  const network = yield* Effect.provide(Network, context)
  return { network, letGo: Scope.close(scope, Exit.void) }
})

export const nft = (...args: ReadonlyArray<string>): string =>
  execFileSync("nft", args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] })

export const ip = (...args: ReadonlyArray<string>): string =>
  execFileSync("ip", args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] })

/** Whether the rules are there at this moment. */
export const rulesThere = (): boolean => nft("list", "tables").includes("table inet nibrunner")

/** The taps that there are, by name. */
export const taps = (): ReadonlyArray<string> =>
  ip("-br", "link")
    .split("\n")
    .flatMap((line) => /^(nbr\d+)/u.exec(line)?.[1] ?? [])

/** Waits until it holds. */
export const until = (condition: () => boolean, within: Duration.Input = "60 seconds") =>
  Effect.suspend(() => (condition() ? Effect.void : Effect.fail("not yet"))).pipe(
    Effect.tapError(() => Effect.sleep(20)),
    Effect.eventually,
    Effect.timeout(within)
  )

/** Leaves nothing of a test on the host. */
export const cleared = Effect.addFinalizer(() =>
  Effect.sync(() => {
    for (const name of taps()) ip("link", "delete", "dev", name)
    nft("flush", "ruleset")
    execFileSync("conntrack", ["-F"], { stdio: "ignore" })
  })
)

export { tapName }
