/** Objects out of a bucket: a connection that drops is made again from the byte where it dropped. */
import type { Readable } from "node:stream"
import { Cause, Effect, type Pull, Stream } from "effect"
import {
  type ArtifactStoreError,
  ObjectMissing,
  type ObjectReference,
  StoreUnavailable
} from "../../../src/services/ArtifactStore.ts"
import type { OpenObject } from "../cache.ts"
import { type Body, readBody } from "./body.ts"
import { type Bucket, IDLE_TIMEOUT_MS } from "./bucket.ts"
import { type S3Problem, s3Problem } from "./problem.ts"
import { endpointName } from "./settings.ts"

type Pieces = Pull.Pull<readonly [Uint8Array, ...Array<Uint8Array>], ArtifactStoreError>

/** Opens an object; it is only good as long as it is not replaced, which the store is asked to tell by its ETag. */
export const openS3Object =
  (bucket: Bucket): OpenObject =>
  (object) =>
    Effect.gen(function* () {
      const { objectKey } = object
      const request = bucket.request("fetched", objectKey)
      const missing = onMissing(bucket, object)
      const unreachable = (reason: string) =>
        new StoreUnavailable({
          objectKey,
          operation: "fetched",
          kind: "unreachable",
          endpoint: endpointName(bucket.settings),
          reason: `the store at ${endpointName(bucket.settings)} ${reason}`
        })

      let body: Body | undefined
      let offset = 0
      let total: number | undefined
      let etag: string | undefined
      /** Bytes that come again, from a store that knows no ranges. */
      let known = 0

      const close = () => {
        body?.close()
        body = undefined
      }
      yield* Effect.addFinalizer(() => Effect.sync(close))

      const connect = Effect.suspend(() =>
        bucket.send(request, (client, options) =>
          client.send(
            new bucket.sdk.GetObjectCommand({
              ...bucket.at(objectKey),
              ...(offset === 0 ? {} : { Range: `bytes=${offset}-` }),
              ...(offset === 0 || etag === undefined ? {} : { IfMatch: etag })
            }),
            options
          )
        )
      ).pipe(
        Effect.map((answer) => {
          const whole = answer.ContentRange === undefined
          known = whole ? offset : 0
          etag ??= answer.ETag
          if (answer.ContentLength !== undefined) total ??= answer.ContentLength + (whole ? 0 : offset)
          body = readBody(answer.Body as Readable)
          return body
        })
      )

      const take = Effect.suspend(() => (body === undefined ? connect : Effect.succeed(body))).pipe(
        Effect.flatMap((open) =>
          open.take.pipe(
            Effect.mapError((error) => s3Problem(request, error)),
            Effect.timeoutOrElse({
              duration: IDLE_TIMEOUT_MS,
              orElse: () => Effect.fail(unreachable(`has sent nothing for ${IDLE_TIMEOUT_MS / 1000} seconds`))
            })
          )
        ),
        Effect.flatMap((pieces): Effect.Effect<ReadonlyArray<Uint8Array>, S3Problem> => {
          if (pieces.length === 0 && total !== undefined && offset < total) {
            return Effect.fail(unreachable(`ended its answer after ${offset} of ${total} bytes`))
          }
          const fresh = skip(pieces, known)
          const came = lengthOf(pieces)
          known = Math.max(0, known - came)
          offset += lengthOf(fresh)
          return pieces.length > 0 && fresh.length === 0 ? take : Effect.succeed(fresh)
        }),
        // Whatever is wrong with this connection, the next attempt has one of its own.
        Effect.onError(() => Effect.sync(close))
      )

      const pull = Effect.suspend((): Pieces => {
        if (total !== undefined && offset >= total) return Cause.done()
        return Effect.flatMap(
          bucket.patiently(take).pipe(missing),
          ([first, ...more]): Pieces =>
            first === undefined ? Cause.done() : Effect.succeed([first, ...more])
        )
      })

      yield* bucket.patiently(connect).pipe(missing)
      return { sizeBytes: total, bytes: Stream.fromPull(Effect.succeed(pull)) }
    })

const onMissing =
  ({ settings }: Bucket, { objectKey }: ObjectReference) =>
  <A, R>(effect: Effect.Effect<A, S3Problem, R>): Effect.Effect<A, ArtifactStoreError, R> =>
    Effect.catchTag(effect, "NotThere", () =>
      Effect.fail(new ObjectMissing({ objectKey, store: `s3://${settings.bucket}/${settings.prefix}` }))
    )

const lengthOf = (pieces: ReadonlyArray<Uint8Array>): number =>
  pieces.reduce((sum, piece) => sum + piece.byteLength, 0)

/** The pieces without their first `bytes`. */
const skip = (pieces: ReadonlyArray<Uint8Array>, bytes: number): ReadonlyArray<Uint8Array> => {
  if (bytes === 0) return pieces
  let left = bytes
  return pieces.flatMap((piece) => {
    const from = Math.min(left, piece.byteLength)
    left -= from
    return from === piece.byteLength ? [] : [piece.subarray(from)]
  })
}
