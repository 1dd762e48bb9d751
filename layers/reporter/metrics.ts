/**
 * `GET /metrics` on the address of `[metrics]`. Nothing else is there and nothing can be changed by asking.
 *
 * Whoever asks may be slow, broken or hostile: connections are few and short, and a page is made at most once a
 * second, however many ask.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { Effect, FiberSet, Layer } from "effect"
import { CONTENT_TYPE } from "../../src/metrics/exposition.ts"
import { MetricsPage, MetricsPageError, type Page } from "../../src/services/MetricsPage.ts"
import { closeAtOnce, listen } from "../proxy/http/listen.ts"

export interface MetricsPageOptions {
  readonly address: string
  /** 0 takes a free one. */
  readonly port: number
  /** How long a caller may take for its answer, in ms. */
  readonly answerMs?: number
  /** Told where the page is, once it is there. */
  readonly onListening?: (port: number) => void
}

/** Of a Prometheus, a spare one, and people with browsers. */
const MAX_CONNECTIONS = 16
const MAX_HEADER_BYTES = 8 * 1024
const REQUEST_MS = 5_000
/** Prometheus itself gives up after 10 s, unless told otherwise. */
const ANSWER_MS = 30_000
/** For how long a page is as good as a new one. */
const PAGE_MS = 1_000

const refuse = (response: ServerResponse, status: number, sentence: string, headers = {}) => {
  const body = Buffer.from(`${sentence}\n`)
  response.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    "content-length": body.length,
    "cache-control": "no-store",
    connection: "close",
    ...headers
  })
  response.end(body)
}

const answer = (response: ServerResponse, pieces: Page) => {
  response.writeHead(200, {
    "content-type": CONTENT_TYPE,
    "content-length": pieces.reduce((sum, piece) => sum + piece.length, 0),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    connection: "close"
  })
  for (const piece of pieces) response.write(piece)
  response.end()
}

/** Fails when the address cannot be listened on. The page is gone when the layer's scope closes. */
export const layerMetricsPage = (options: MetricsPageOptions): Layer.Layer<never, MetricsPageError> =>
  Layer.effect(MetricsPage, make(options))

const make = Effect.fnUntraced(function* (options: MetricsPageOptions) {
  const fork = yield* FiberSet.makeRuntime<never>()
  let offered: Effect.Effect<Page> | undefined

  // Those who hold a page hold the same bytes, so a slow reader costs no memory of its own.
  const [page, makeAnew] = yield* Effect.cachedInvalidateWithTTL(
    Effect.suspend((): Effect.Effect<Page | undefined> => offered ?? Effect.succeed(undefined)),
    PAGE_MS
  )

  const serve = (response: ServerResponse) =>
    page.pipe(
      Effect.map((pieces) =>
        pieces === undefined
          ? refuse(response, 503, "The host is not ready yet.", { "retry-after": "1" })
          : answer(response, pieces)
      ),
      Effect.catchCause((cause) =>
        Effect.andThen(
          Effect.logError("the metrics page could not be made", cause),
          Effect.sync(() => refuse(response, 500, "The page could not be made; the daemon's log says why."))
        )
      )
    )

  const handle = (request: IncomingMessage, response: ServerResponse) => {
    const late = setTimeout(() => response.destroy(), options.answerMs ?? ANSWER_MS)
    response.once("close", () => clearTimeout(late))
    response.on("error", () => response.destroy())
    const path = request.url?.split("?", 1)[0]
    if (path !== "/metrics") return refuse(response, 404, "There is only /metrics here.")
    if (request.method !== "GET" && request.method !== "HEAD") {
      return refuse(response, 405, "/metrics can only be read.", { allow: "GET, HEAD" })
    }
    fork(serve(response))
  }

  const server = createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: REQUEST_MS,
      requestTimeout: REQUEST_MS,
      connectionsCheckingInterval: 1_000
    },
    handle
  )
  server.maxConnections = MAX_CONNECTIONS
  yield* Effect.acquireRelease(
    listen(server, options.address, options.port, (error) =>
      fork(Effect.logError("the listener of the metrics page met an error", error))
    ).pipe(Effect.mapError((reason) => new MetricsPageError({ reason }))),
    () => closeAtOnce(server)
  ).pipe(Effect.map((port) => options.onListening?.(port)))

  return {
    offer: (next: Effect.Effect<Page>) =>
      Effect.acquireRelease(
        Effect.andThen(
          Effect.sync(() => {
            offered = next
          }),
          makeAnew
        ),
        () =>
          Effect.sync(() => {
            offered = undefined
          })
      )
  }
})
