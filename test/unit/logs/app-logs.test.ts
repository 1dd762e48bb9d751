import * as fs from "node:fs/promises"
import { Effect } from "effect"
import { layerFileLogs, logFiles } from "../../../layers/logs/file.ts"
import { layerAppLogsMemory, makeAppLogsWorld } from "../../../layers/testing/AppLogs.ts"
import { appLogsConformance } from "../../conformance/app-logs.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

appLogsConformance(
  "memory",
  Effect.sync(() => {
    const world = makeAppLogsWorld()
    return {
      layer: layerAppLogsMemory(world),
      records: (appId) => Effect.sync(() => world.records.get(appId) ?? [])
    }
  })
)

appLogsConformance(
  "a file per app",
  Effect.map(temporaryDirectory, (stateDir) => ({
    layer: layerFileLogs({ stateDir, keepBytes: 256 * 2 ** 20 }),
    records: (appId) =>
      Effect.promise(async () => {
        const text = await fs.readFile(logFiles(stateDir, appId)[0], "utf8").catch(() => "")
        return text.split("\n").slice(0, -1)
      })
  }))
)
