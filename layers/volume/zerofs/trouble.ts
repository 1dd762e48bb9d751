/** Whether ZeroFS serves volumes: asked now and then, so that apps can say why they wait. */
import { Clock, Effect, SubscriptionRef } from "effect"
import { openExport } from "./nbd.ts"
import { openDirectory } from "./ninep.ts"
import { within } from "./socket.ts"

export interface WatchOptions {
  readonly ninepSocket: string
  readonly nbdSocket: string
  /** ZeroFS's directory of volumes. */
  readonly directory: string
}

const ASK_EVERY_MS = 5_000
/** While it does not serve. */
const ASK_AGAIN_MS = 1_000
const ANSWER_LIMIT_SECONDS = 10
/** That its store can be written is asked less often: a flush is a request to the store. */
const FLUSH_EVERY_MS = 60_000
const FLUSH_LIMIT_SECONDS = 60

const explain = (reason: string) =>
  `${reason}; its volume waits and goes on by itself (journalctl -u nibrunner-zerofs; the store's credentials are in host.env)`

/** Fails with why it does not serve. The flush goes through any volume: it is the whole store's. */
const ask = ({ ninepSocket, nbdSocket, directory }: WatchOptions, flush: boolean) =>
  Effect.gen(function* () {
    const names = yield* openDirectory(ninepSocket, directory).pipe(
      Effect.flatMap((files) => files.names),
      Effect.scoped,
      within(ANSWER_LIMIT_SECONDS, ninepSocket)
    )
    const [name] = names
    if (name === undefined) return
    yield* Effect.gen(function* () {
      const volume = yield* openExport(nbdSocket, name)
      if (flush) yield* volume.flush.pipe(within(FLUSH_LIMIT_SECONDS, nbdSocket))
    }).pipe(
      Effect.scoped,
      within(ANSWER_LIMIT_SECONDS + FLUSH_LIMIT_SECONDS, nbdSocket),
      // it was deleted in between
      Effect.catchTag("NoExport", () => Effect.void)
    )
  })

/** Keeps `trouble` up to date until the scope ends. */
export const watchTrouble = (
  options: WatchOptions,
  trouble: SubscriptionRef.SubscriptionRef<string | undefined>
) =>
  Effect.gen(function* () {
    let flushDue = 0
    while (true) {
      const now = yield* Clock.currentTimeMillis
      const before = yield* SubscriptionRef.get(trouble)
      const flush = before !== undefined || now >= flushDue
      const after = yield* ask(options, flush).pipe(
        Effect.as(undefined),
        Effect.catch((error) => Effect.succeed(explain(error.message)))
      )
      if (flush && after === undefined) flushDue = now + FLUSH_EVERY_MS
      if (after !== before) {
        yield* SubscriptionRef.set(trouble, after)
        if (after === undefined) yield* Effect.logInfo("ZeroFS serves volumes again")
        else yield* Effect.logWarning(after)
      }
      yield* Effect.sleep(after === undefined ? ASK_EVERY_MS : ASK_AGAIN_MS)
    }
  }).pipe(Effect.forkScoped)
