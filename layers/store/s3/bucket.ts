/** A bucket, asked through AWS's client: what its promises fail with in sentences, and what passes tried again. */
import { Effect, Redacted, Schedule, type Scope } from "effect"
import type { StoreOperation } from "../../../src/services/store-errors.ts"
import { type NotThere, type Request, type S3Problem, s3Problem } from "./problem.ts"
import type * as Sdk from "./sdk.ts"
import type { S3Settings } from "./settings.ts"

const CONNECTION_TIMEOUT_MS = 10_000
/** A connection on which nothing moves for so long is given up. */
export const IDLE_TIMEOUT_MS = 30_000
const PATIENCE = "30 seconds"

export interface Bucket {
  readonly settings: S3Settings
  readonly sdk: typeof Sdk
  /** What every command about an object is given. */
  readonly at: (objectKey: string) => { readonly Bucket: string; readonly Key: string }
  /** Sends once; interrupted, the request is ended. */
  readonly send: <A>(
    request: Request,
    run: (client: Sdk.S3Client, options: { readonly abortSignal: AbortSignal }) => Promise<A>
  ) => Effect.Effect<A, S3Problem>
  /** Runs again, later and later, as long as the store cannot be had and patience lasts. */
  readonly patiently: <A, E extends S3Problem | { readonly _tag: string }, R>(
    effect: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E, R>
  readonly request: (operation: StoreOperation, objectKey: string) => Request
}

/**
 * Loads the client, which is kept for the scope. Nothing is asked of the store yet. The client does not try again by
 * itself: each attempt is ours, so that they do not multiply.
 */
export const makeBucket = (settings: S3Settings): Effect.Effect<Bucket, never, Scope.Scope> =>
  Effect.gen(function* () {
    const sdk = yield* Effect.promise(() => import("./sdk.ts"))
    const { sessionToken } = settings
    const client = yield* Effect.acquireRelease(
      Effect.sync(
        () =>
          new sdk.S3Client({
            region: settings.region,
            credentials: {
              accessKeyId: settings.accessKeyId,
              secretAccessKey: Redacted.value(settings.secretAccessKey),
              ...(sessionToken === undefined ? {} : { sessionToken: Redacted.value(sessionToken) })
            },
            ...(settings.endpoint === undefined ? {} : { endpoint: settings.endpoint }),
            forcePathStyle: settings.pathStyle,
            maxAttempts: 1,
            requestHandler: { connectionTimeout: CONNECTION_TIMEOUT_MS, socketTimeout: IDLE_TIMEOUT_MS }
          })
      ),
      (made) => Effect.sync(() => made.destroy())
    )
    const schedule = Schedule.min([Schedule.exponential("200 millis"), Schedule.spaced("5 seconds")]).pipe(
      Schedule.jittered,
      Schedule.upTo({ duration: settings.patience ?? PATIENCE })
    )

    return {
      settings,
      sdk,
      at: (objectKey) => ({ Bucket: settings.bucket, Key: settings.prefix + objectKey }),
      request: (operation, objectKey) => ({ settings, operation, objectKey }),
      send: (request, run) =>
        Effect.tryPromise({
          try: (abortSignal) => run(client, { abortSignal }),
          catch: (error) => s3Problem(request, error)
        }),
      patiently: (effect) =>
        effect.pipe(
          Effect.tapError((error) =>
            error._tag === "StoreUnavailable" ? Effect.logDebug(error) : Effect.void
          ),
          Effect.retry({ schedule, while: (error) => error._tag === "StoreUnavailable" })
        )
    }
  })

/** For an operation that no missing object can be an answer to. */
export const isNotThere = (problem: { readonly _tag: string }): problem is NotThere =>
  problem._tag === "NotThere"
