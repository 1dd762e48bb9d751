/** A metrics page that a test asks for. */
import { Effect, Layer } from "effect"
import { MetricsPage, type Page } from "../../src/services/MetricsPage.ts"

/** What outlives the layer. */
export interface MetricsPageWorld {
  /** How the page is made now; undefined while no host offers one. */
  page: Effect.Effect<Page> | undefined
}

export const makeMetricsPageWorld = (): MetricsPageWorld => ({ page: undefined })

export const layerMetricsPageMemory = (world: MetricsPageWorld) =>
  Layer.succeed(MetricsPage, {
    offer: (page) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          world.page = page
        }),
        () =>
          Effect.sync(() => {
            world.page = undefined
          })
      )
  })

/** The page as one text; empty while no host offers one. */
export const readPage = (world: MetricsPageWorld): Effect.Effect<string> =>
  Effect.suspend(() =>
    world.page === undefined
      ? Effect.succeed("")
      : Effect.map(world.page, (pieces) => Buffer.concat(pieces).toString("utf8"))
  )
