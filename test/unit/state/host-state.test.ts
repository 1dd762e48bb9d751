import { Effect } from "effect"
import { layerSqliteState } from "../../../layers/state/sqlite.ts"
import { layerHostStateMemory, makeHostStateWorld } from "../../../layers/testing/HostState.ts"
import { hostStateConformance } from "../../conformance/host-state.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

hostStateConformance(
  "memory",
  Effect.sync(() => ({ layer: layerHostStateMemory(makeHostStateWorld()) }))
)

hostStateConformance(
  "SQLite",
  Effect.map(temporaryDirectory, (stateDir) => ({ layer: layerSqliteState({ stateDir }) }))
)
