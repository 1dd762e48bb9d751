/** A bucket, asked through AWS's client: what its promises fail with in sentences, and what passes tried again. */
import { Effect, Redacted, Schedule, type Scope } from "effect"
import { type StoreOperation, StoreUnusable } from "../../../src/services/store-errors.ts"
import { type Request, type S3Problem, s3Problem } from "./problem.ts"
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
  /** The checksum that uploads in parts are begun with, unless `AWS_REQUEST_CHECKSUM_CALCULATION` says when_required. */
  readonly checksum: Effect.Effect<{ readonly ChecksumAlgorithm?: "CRC32" }>
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

/** S3's limit. Bytes. */
const MAX_KEY_BYTES = 1024

/** Why no object can have this key. No XML can name a NUL, and stores answer as if it were their own fault. */
export const keyProblem = ({ objectKey, operation, settings }: Request): StoreUnusable | undefined => {
  const reason = objectKey.includes("\0")
    ? "the key holds a NUL character"
    : Buffer.byteLength(settings.prefix + objectKey) > MAX_KEY_BYTES
      ? `with the prefix of the store its key is longer than S3 allows (${MAX_KEY_BYTES} bytes)`
      : undefined
  return reason === undefined ? undefined : new StoreUnusable({ objectKey, operation, reason })
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
      checksum: Effect.promise(async () =>
        (await client.config.requestChecksumCalculation()) === "WHEN_SUPPORTED"
          ? { ChecksumAlgorithm: "CRC32" as const }
          : {}
      ),
      send: (request, run) => {
        const problem = keyProblem(request)
        if (problem !== undefined) return Effect.fail(problem)
        return Effect.tryPromise({
          try: (abortSignal) => run(client, { abortSignal }),
          catch: (error) => s3Problem(request, error)
        })
      },
      patiently: (effect) =>
        effect.pipe(
          Effect.tapError((error) =>
            error._tag === "StoreUnavailable" ? Effect.logDebug(error) : Effect.void
          ),
          Effect.retry({ schedule, while: (error) => error._tag === "StoreUnavailable" })
        )
    }
  })
