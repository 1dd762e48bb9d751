/** Objects into a bucket: in one request when they are small, else in parts, of which a few are under way at a time. */
import { randomUUID } from "node:crypto"
import { Effect, Option, Schedule, type Scope, Stream } from "effect"
import type { ExportStoreError, PutOptions, Stored, Storing } from "../../../src/services/ExportStore.ts"
import { StoreUnusable } from "../../../src/services/store-errors.ts"
import { makeThrottled } from "../progress.ts"
import { type Bucket, keyProblem } from "./bucket.ts"
import { inParts, type Part, type PartsPlan, planParts } from "./parts.ts"
import type { S3Problem } from "./problem.ts"

/** What tells our object from another of its key, when the answer that it is there was lost. */
const MARK = "nibrunner-upload"
/** How long the end of an upload that failed may take. */
const ABORT_WITHIN = "20 seconds"
const ABORT_AGAIN = "250 millis"
const ABORTS = 8

interface Upload {
  readonly id: string
}

interface Finished {
  readonly PartNumber: number
  readonly ETag: string | undefined
  /** What the client has computed, and the store checked. */
  readonly ChecksumCRC32: string | undefined
}

/** Gives the `put` of a bucket. */
export const putS3Object =
  (bucket: Bucket) =>
  <E, R>(
    objectKey: string,
    contents: Stream.Stream<Uint8Array, E, R>,
    options: PutOptions = {}
  ): Effect.Effect<Stored, ExportStoreError | E, R> =>
    Effect.gen(function* () {
      const problem = keyProblem(bucket.request("stored", objectKey))
      if (problem !== undefined) return yield* problem
      const plan = planParts(options.expectedBytes)
      const writer = yield* makeWriter(bucket, objectKey, options)
      yield* writer.abortOthers
      const finished = yield* contents.pipe(
        inParts(plan, tooLarge(objectKey, plan)),
        Stream.mapEffect(writer.write, { concurrency: plan.concurrency, unordered: true }),
        Stream.runCollect
      )
      return yield* writer.complete(finished)
    }).pipe(Effect.scoped)

const tooLarge = (objectKey: string, plan: PartsPlan) =>
  new StoreUnusable({
    objectKey,
    operation: "stored",
    reason: `it is larger than the ${plan.maxParts} parts of ${plan.partBytes / 2 ** 20} MiB that an object on S3 can have`
  })

const makeWriter = (
  bucket: Bucket,
  objectKey: string,
  { onProgress }: PutOptions
): Effect.Effect<Writer, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { at, sdk } = bucket
    const where = at(objectKey)
    const request = bucket.request("stored", objectKey)
    const mark = randomUUID()
    const checksum = yield* bucket.checksum
    let storedBytes = 0
    let upload: Upload | undefined
    let complete = false

    const tell = onProgress === undefined ? undefined : makeThrottled<Storing>(onProgress)
    const stored = (bytes: number) =>
      Effect.suspend(() => {
        storedBytes += bytes
        return tell?.({ objectKey, bytes: storedBytes }) ?? Effect.void
      })

    const abortOnce = (id: string) =>
      bucket.patiently(
        bucket.send(request, (client, options) =>
          client.send(new sdk.AbortMultipartUploadCommand({ ...where, UploadId: id }), options)
        )
      )

    // A part that the store is still taking while the upload is ended may bring it back to life: S3 says to end it
    // again until it is not known any more. Some stores never say so.
    const abort = (id: string) =>
      abortOnce(id).pipe(
        Effect.repeat(Schedule.max([Schedule.spaced(ABORT_AGAIN), Schedule.recurs(ABORTS)])),
        Effect.catchTag("NotThere", () => Effect.void),
        Effect.timeout(ABORT_WITHIN)
      )

    yield* Effect.addFinalizer(() =>
      Effect.suspend(() => {
        if (upload === undefined || complete) return Effect.void
        const { id } = upload
        return abort(id).pipe(
          Effect.catch((error) =>
            Effect.logWarning(
              `parts of ${objectKey} are left in bucket ${bucket.settings.bucket} (upload ${id}): ${error.message}`
            )
          )
        )
      })
    )

    // Without interruption between the store's answer and the note of it: an upload that nobody knows is never ended.
    const begin = yield* Effect.cached(
      Effect.uninterruptibleMask((restore) =>
        restore(
          bucket.patiently(
            bucket.send(request, (client, options) =>
              client.send(
                new sdk.CreateMultipartUploadCommand({ ...where, ...checksum, Metadata: { [MARK]: mark } }),
                options
              )
            )
          )
        ).pipe(
          Effect.flatMap(({ UploadId }) =>
            Effect.suspend(() => {
              if (UploadId === undefined) return Effect.fail(senseless("names no upload"))
              upload = { id: UploadId }
              return Effect.succeed(upload)
            })
          )
        )
      )
    )

    const senseless = (what: string) =>
      new StoreUnusable({ objectKey, operation: "stored", reason: `the store's answer ${what}` })

    const whole = (part: Part) =>
      bucket
        .patiently(
          bucket.send(request, (client, options) =>
            client.send(
              new sdk.PutObjectCommand({
                ...where,
                Body: part.bytes,
                ContentLength: part.bytes.byteLength
              }),
              options
            )
          )
        )
        .pipe(Effect.as<Option.Option<Finished>>(Option.none()))

    const part = ({ bytes, number }: Part) =>
      Effect.gen(function* () {
        const { id } = yield* begin
        const { ChecksumCRC32, ETag } = yield* bucket.patiently(
          bucket.send(request, (client, options) =>
            client.send(
              new sdk.UploadPartCommand({
                ...where,
                ...checksum,
                UploadId: id,
                PartNumber: number,
                Body: bytes,
                ContentLength: bytes.byteLength
              }),
              options
            )
          )
        )
        return Option.some<Finished>({ PartNumber: number, ETag, ChecksumCRC32 })
      })

    const write: Writer["write"] = (piece) =>
      (piece.only ? whole(piece) : part(piece)).pipe(
        final(objectKey),
        Effect.tap(() => stored(piece.bytes.byteLength)),
        Effect.ensuring(Effect.sync(piece.release))
      )

    /** Whether the object under the key is the one of this upload. */
    const isOurs = bucket
      .send(request, (client, options) => client.send(new sdk.HeadObjectCommand(where), options))
      .pipe(Effect.map(({ Metadata }) => Metadata?.[MARK] === mark))

    const join = ({ id }: Upload, parts: ReadonlyArray<Finished>) =>
      bucket.patiently(
        bucket
          .send(request, (client, options) =>
            client.send(
              new sdk.CompleteMultipartUploadCommand({
                ...where,
                UploadId: id,
                MultipartUpload: {
                  Parts: parts
                    .map(({ ChecksumCRC32, ETag, PartNumber }) => ({
                      PartNumber,
                      ...(ETag === undefined ? {} : { ETag }),
                      ...(ChecksumCRC32 === undefined ? {} : { ChecksumCRC32 })
                    }))
                    .toSorted((a, b) => a.PartNumber - b.PartNumber)
                }
              }),
              options
            )
          )
          .pipe(
            // The upload is gone when it was completed, and the answer was lost on its way.
            Effect.catchTag("NotThere", (gone) =>
              Effect.flatMap(isOurs, (ours) => (ours ? Effect.void : Effect.fail(gone)))
            )
          )
      )

    return {
      write,
      complete: (results) =>
        Effect.gen(function* () {
          if (upload !== undefined) yield* join(upload, results.flatMap(Option.toArray))
          complete = true
          if (onProgress !== undefined) yield* onProgress({ objectKey, bytes: storedBytes })
          return { sizeBytes: storedBytes }
        }).pipe(final(objectKey)),
      abortOthers: bucket
        .send(request, (client, options) =>
          client.send(
            new sdk.ListMultipartUploadsCommand({ Bucket: where.Bucket, Prefix: where.Key }),
            options
          )
        )
        .pipe(
          Effect.flatMap(({ Uploads }) =>
            Effect.forEach(
              (Uploads ?? []).flatMap(({ Key, UploadId }) =>
                Key === where.Key && UploadId !== undefined ? [UploadId] : []
              ),
              abort,
              { discard: true }
            )
          ),
          // A policy need not allow to list: then what a killed daemon left is for the bucket's lifecycle.
          Effect.ignore
        )
    }
  })

interface Writer {
  readonly write: (part: Part) => Effect.Effect<Option.Option<Finished>, ExportStoreError>
  readonly complete: (
    finished: ReadonlyArray<Option.Option<Finished>>
  ) => Effect.Effect<Stored, ExportStoreError>
  /** Ends the uploads of this key that an earlier daemon was killed in. */
  readonly abortOthers: Effect.Effect<void>
}

/** That a thing is not there is the end of an upload. */
const final =
  (objectKey: string) =>
  <A, R>(effect: Effect.Effect<A, S3Problem, R>): Effect.Effect<A, ExportStoreError, R> =>
    Effect.catchTag(effect, "NotThere", ({ code }) =>
      Effect.fail(
        new StoreUnusable({
          objectKey,
          operation: "stored",
          reason: `the store no longer knows the upload (${code}): somebody else ended it`
        })
      )
    )
