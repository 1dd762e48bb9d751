/** Apps' logs in memory. */
import { Effect, Layer } from "effect"
import type { AppId } from "../../src/document/schema.ts"
import { AppLogs } from "../../src/services/AppLogs.ts"
import { openSession } from "../logs/session.ts"

/** What outlives the layer, as a disk does. */
export interface AppLogsWorld {
  /** Every record of each app, oldest first, each as the line that the file would hold. */
  readonly records: Map<AppId, Array<string>>
}

export const makeAppLogsWorld = (): AppLogsWorld => ({ records: new Map() })

export const layerAppLogsMemory = (world: AppLogsWorld) =>
  Layer.succeed(AppLogs, {
    open: (appId, sessionId) =>
      openSession(sessionId, (records) =>
        Effect.sync(() => {
          const present = world.records.get(appId)
          if (present === undefined) world.records.set(appId, [...records])
          else present.push(...records)
        })
      ),
    forget: (appId) =>
      Effect.sync(() => {
        world.records.delete(appId)
      })
  })
