import { createHash } from "node:crypto"
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Logger, Redacted, Stream } from "effect"
import { layerS3Artifacts, layerS3Exports } from "../../../layers/store/s3/layer.ts"
import type { S3Settings } from "../../../layers/store/s3/settings.ts"
import { ArtifactStore, FetchObserver, FetchProgress } from "../../../src/services/ArtifactStore.ts"
import { ExportStore } from "../../../src/services/ExportStore.ts"
import { forward, s3Error, startFront, type Verdict } from "../../support/s3-front.ts"
import { freePort, startS3Server } from "../../support/s3-server.ts"
import { sharedS3Server } from "../../support/shared-s3.ts"
import { temporaryDirectory } from "../../support/temporary.ts"

const MIB = 2 ** 20
const server = sharedS3Server()

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex")

/** Bytes of which no two places are alike. */
const content = (length: number): Buffer => {
  const bytes = Buffer.alloc(length)
  for (let at = 0; at + 4 <= length; at += 4) bytes.writeUInt32LE((at * 2_654_435_761) >>> 0, at)
  return bytes
}

/** A bucket behind the front, and a daemon's state directory. */
const place = Effect.gen(function* () {
  const { bucket: make, port } = yield* server
  const bucket = yield* make
  const front = yield* startFront(port)
  const stateDir = yield* temporaryDirectory
  const settings = (change: Partial<S3Settings> = {}) => bucket.settings(change, front.port)
  return {
    bucket,
    front,
    settings,
    fetch: (objectKey: string, digest: string, change: Partial<S3Settings> = {}) =>
      ArtifactStore.use((store) => store.fetch({ objectKey, digest })).pipe(
        Effect.provide(layerS3Artifacts({ settings: settings(change), stateDir }))
      ),
    put: (objectKey: string, contents: Stream.Stream<Uint8Array>, change: Partial<S3Settings> = {}) =>
      ExportStore.use((store) => store.put(objectKey, contents)).pipe(
        Effect.provide(layerS3Exports(settings(change)))
      ),
    cached: Effect.promise(() => fs.readdir(path.join(stateDir, "artifacts")))
  }
})

/** The verdicts in their order for the requests that fit, then everything is forwarded. */
const inOrder = (
  verdicts: ReadonlyArray<Verdict>,
  fits: (request: { readonly method: string; readonly url: string }) => boolean
) => {
  let next = 0
  return (request: { readonly method: string; readonly url: string }): Verdict =>
    fits(request) ? (verdicts[next++] ?? forward) : forward
}

const isGet = ({ method }: { readonly method: string }) => method === "GET"
const isPart = ({ method, url }: { readonly method: string; readonly url: string }) =>
  method === "PUT" && url.includes("partNumber=")

/** One piece at a time, as a slow producer gives them. */
const streamed = (bytes: Uint8Array) =>
  Stream.unfold(0, (at) =>
    Effect.succeed(at >= bytes.length ? undefined : ([bytes.subarray(at, at + MIB), at + MIB] as const))
  )

describe("a fetch from S3", () => {
  it.live("goes on where the connection broke off, as often as it does", () =>
    Effect.gen(function* () {
      const { bucket, front, fetch } = yield* place
      const bytes = content(8 * MIB)
      yield* bucket.put("app", bytes)
      const cut: Verdict = { kind: "cut", afterBytes: 2 * MIB + 77 }
      front.rule = inOrder([cut, cut, cut], isGet)
      const file = yield* fetch("app", sha256(bytes))
      assert.isTrue(bytes.equals(yield* Effect.promise(() => fs.readFile(file))))
      const ranges = front.requests.map(({ headers }) => headers.range)
      assert.isUndefined(ranges[0])
      assert.strictEqual(ranges.length, 4)
      for (const [index, range] of ranges.slice(1).entries()) {
        assert.strictEqual(range, `bytes=${(index + 1) * (2 * MIB + 77)}-`)
      }
      const etags = new Set(front.requests.slice(1).map(({ headers }) => headers["if-match"]))
      assert.strictEqual(etags.size, 1)
      assert.isString([...etags][0])
    })
  )

  it.live("skips what it has where a store knows no ranges and begins anew", () =>
    Effect.gen(function* () {
      const { bucket, front, fetch } = yield* place
      const bytes = content(5 * MIB)
      yield* bucket.put("app", bytes)
      front.rule = ({ index }) =>
        index === 0
          ? { kind: "cut", afterBytes: 3 * MIB + 5 }
          : { kind: "answer", status: 200, body: bytes, headers: { "content-length": String(bytes.length) } }
      const file = yield* fetch("app", sha256(bytes))
      assert.isTrue(bytes.equals(yield* Effect.promise(() => fs.readFile(file))))
      assert.strictEqual(front.requests.length, 2)
    })
  )

  it.live("survives that the server is killed in the middle of it and started again", () =>
    Effect.gen(function* () {
      const running = yield* startS3Server(yield* temporaryDirectory)
      const bucket = yield* running.bucket
      const bytes = content(96 * MIB)
      yield* bucket.put("app", bytes)
      const stateDir = yield* temporaryDirectory
      const begun = yield* Deferred.make<number>()
      const fiber = yield* ArtifactStore.use((store) =>
        store.fetch({ objectKey: "app", digest: sha256(bytes) })
      ).pipe(
        Effect.provide(layerS3Artifacts({ settings: bucket.settings(), stateDir })),
        // The fetch itself waits for the server to be gone.
        Effect.provideService(FetchProgress, ({ bytes: had }) =>
          Deferred.isDone(begun).pipe(
            Effect.flatMap((done) =>
              done ? Effect.void : Effect.andThen(running.kill, Deferred.succeed(begun, had))
            )
          )
        ),
        Effect.forkChild
      )
      assert.isBelow(yield* Deferred.await(begun), bytes.length)
      yield* running.start
      const file = yield* Fiber.join(fiber)
      assert.isTrue(bytes.equals(yield* Effect.promise(() => fs.readFile(file))))
    })
  )

  it.live("waits for a store that is overloaded, fails or is not there at first", () =>
    Effect.gen(function* () {
      const { bucket, front, fetch } = yield* place
      yield* bucket.put("app", content(1000))
      front.rule = inOrder(
        [
          s3Error(503, "SlowDown"),
          { kind: "answer", status: 503 },
          s3Error(500, "InternalError"),
          { kind: "drop" }
        ],
        isGet
      )
      yield* fetch("app", sha256(content(1000)))
      assert.strictEqual(front.requests.length, 5)
    })
  )

  it.live(
    "does not take the store's time for ever: an overload that lasts is said, and each attempt is one request",
    () =>
      Effect.gen(function* () {
        const { front, fetch } = yield* place
        front.rule = () => s3Error(503, "SlowDown")
        const error = yield* Effect.flip(fetch("app", "0".repeat(64), { patience: "1 second" }))
        assert.strictEqual(error._tag, "StoreUnavailable")
        assert.strictEqual(
          error.message,
          `object "app" cannot be fetched: the store at 127.0.0.1:${front.port} is overloaded (503)`
        )
        // 0.2, 0.4, 0.8 seconds, each a fifth more or less: the client's own attempts would treble them.
        assert.isAtMost(front.requests.length, 5)
        assert.isAtLeast(front.requests.length, 2)
      })
  )

  it.live("refuses a wrong body of the right length, and keeps nothing of it", () =>
    Effect.gen(function* () {
      const { bucket, front, fetch, cached } = yield* place
      const bytes = content(MIB)
      yield* bucket.put("app", bytes)
      front.rule = () => ({ kind: "change", change: (piece) => piece.map((byte) => byte ^ 1) as Buffer })
      const error = yield* Effect.flip(fetch("app", sha256(bytes)))
      assert.strictEqual(error._tag, "DigestMismatch")
      assert.deepStrictEqual(yield* cached, [])
    })
  )

  it.live("does not mend one object with the end of another that took its place", () =>
    Effect.gen(function* () {
      const { bucket, front, fetch, cached } = yield* place
      const bytes = content(4 * MIB)
      yield* bucket.put("app", bytes)
      front.rule = ({ index }) => (index === 0 ? { kind: "cut", afterBytes: MIB } : forward)
      const begun = yield* Deferred.make<void>()
      const fiber = yield* fetch("app", sha256(bytes)).pipe(
        Effect.provideService(FetchProgress, () =>
          Effect.andThen(bucket.put("app", content(5 * MIB)), Deferred.succeed(begun, undefined))
        ),
        Effect.flip,
        Effect.forkChild
      )
      yield* Deferred.await(begun)
      const error = yield* Fiber.join(fiber)
      assert.strictEqual(
        error.message,
        'object "app" cannot be fetched: it was replaced in the store while it was being fetched'
      )
      assert.deepStrictEqual(yield* cached, [])
    })
  )

  it.live("leaves nothing when it is interrupted, and ends its request", () =>
    Effect.gen(function* () {
      const { bucket, fetch, cached } = yield* place
      const bytes = content(32 * MIB)
      yield* bucket.put("app", bytes)
      const begun = yield* Deferred.make<void>()
      const fiber = yield* fetch("app", sha256(bytes)).pipe(
        Effect.provideService(FetchProgress, () =>
          Effect.andThen(Deferred.succeed(begun, undefined), Effect.never)
        ),
        Effect.forkChild
      )
      yield* Deferred.await(begun)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(yield* cached, [])
    })
  )

  it.live("is one request for all who ask at the same time, and counted once", () =>
    Effect.gen(function* () {
      const { bucket, front, settings } = yield* place
      const bytes = content(2 * MIB)
      yield* bucket.put("app", bytes)
      const stateDir = yield* temporaryDirectory
      let counted = 0
      yield* Effect.gen(function* () {
        const store = yield* ArtifactStore
        yield* Effect.forEach(
          Array.from({ length: 20 }),
          () => store.fetch({ objectKey: "app", digest: sha256(bytes) }),
          { concurrency: "unbounded" }
        )
      }).pipe(
        Effect.provideService(FetchObserver, ({ bytes: came }) =>
          Effect.sync(() => {
            counted += came
          })
        ),
        Effect.provide(layerS3Artifacts({ settings: settings(), stateDir }))
      )
      assert.strictEqual(front.requests.length, 1)
      assert.strictEqual(counted, bytes.length)
    })
  )

  const wrong: ReadonlyArray<readonly [what: string, verdict: Verdict, sentence: string]> = [
    ["a missing object", s3Error(404, "NoSuchKey"), 'object "app" is not in the artifact store s3://BUCKET/'],
    [
      "a missing object without a word",
      { kind: "answer", status: 404 },
      'object "app" is not in the artifact store s3://BUCKET/'
    ],
    [
      "denied access",
      s3Error(403, "AccessDenied"),
      'object "app" cannot be fetched: the store denies access to it (403); the credentials in host.env need s3:GetObject on bucket BUCKET'
    ],
    [
      "denied access without a word",
      { kind: "answer", status: 403 },
      'object "app" cannot be fetched: the store denies access to it (403); the credentials in host.env need s3:GetObject on bucket BUCKET'
    ],
    [
      "an expired token",
      s3Error(400, "ExpiredToken", { "Token-0": "secret" }),
      'object "app" cannot be fetched: the store\'s credentials have expired: put new ones into host.env and restart the daemon (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)'
    ],
    [
      "an unknown access key",
      s3Error(403, "InvalidAccessKeyId", { AWSAccessKeyId: "AKIDTEST" }),
      'object "app" cannot be fetched: the store does not accept the credentials of host.env (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)'
    ],
    [
      "a clock that is wrong",
      s3Error(403, "RequestTimeTooSkewed"),
      'object "app" cannot be fetched: the store says that this machine\'s clock is wrong by many minutes: set it, and let it be kept right (NTP)'
    ],
    [
      "a missing bucket",
      s3Error(404, "NoSuchBucket"),
      'object "app" cannot be fetched: there is no bucket BUCKET (artifacts.store_url)'
    ],
    [
      "a redirect to the bucket's region",
      s3Error(301, "PermanentRedirect", { Endpoint: "elsewhere" }, { "x-amz-bucket-region": "us-west-2" }),
      'object "app" cannot be fetched: bucket BUCKET is not in region eu-test-1 but in us-west-2: set AWS_REGION in host.env'
    ],
    [
      "a redirect that names no region",
      s3Error(307, "TemporaryRedirect", {}, { location: "http://127.0.0.1:1/elsewhere" }),
      'object "app" cannot be fetched: bucket BUCKET is not in region eu-test-1: set AWS_REGION in host.env'
    ],
    [
      "an answer that is no XML",
      { kind: "answer", status: 418, body: "<html>I am a \u0007teapot" },
      'object "app" cannot be fetched: the store answers 418'
    ]
  ]
  for (const [what, verdict, sentence] of wrong) {
    it.live(`says ${what} in a sentence, at once`, () =>
      Effect.gen(function* () {
        const { bucket, front, fetch, cached } = yield* place
        front.rule = () => verdict
        const error = yield* Effect.flip(fetch("app", "0".repeat(64)))
        const expected = sentence.replaceAll("BUCKET", bucket.name)
        assert.strictEqual(error.message.slice(0, expected.length), expected)
        assert.isAtMost(error.message.length, 512)
        assert.notMatch(error.message, /secret|\p{Cc}/u)
        assert.strictEqual(front.requests.length, 1)
        assert.deepStrictEqual(yield* cached, [])
      })
    )
  }

  it.live("says what this server refuses in the same sentences: region, secret, bucket", () =>
    Effect.gen(function* () {
      const { bucket, fetch } = yield* place
      yield* bucket.put("app", content(1))
      const message = (change: Partial<S3Settings>) =>
        Effect.map(Effect.flip(fetch("app", sha256(content(1)), change)), (error) => error.message)
      assert.include(yield* message({ region: "us-east-1" }), "is not in region us-east-1 but in eu-test-1")
      const secretAccessKey = Redacted.make("another secret")
      assert.include(yield* message({ secretAccessKey }), "does not accept the credentials of host.env")
      assert.include(yield* message({ bucket: "no-such-bucket" }), "there is no bucket no-such-bucket")
    })
  )

  it.live("says that nothing listens where it was sent", () =>
    Effect.gen(function* () {
      const { fetch } = yield* place
      const port = yield* freePort
      const gone = yield* Effect.flip(
        fetch("app", "0".repeat(64), { endpoint: `http://127.0.0.1:${port}`, patience: "300 millis" })
      )
      assert.strictEqual(
        gone.message,
        `object "app" cannot be fetched: the store at 127.0.0.1:${port} cannot be reached: it refuses connections`
      )
    })
  )
})

describe("a put into S3", () => {
  it.live("sends real parts of 5 MiB and more, whatever the pieces are, each with a checksum", () =>
    Effect.gen(function* () {
      const { bucket, front, put } = yield* place
      const bytes = content(40 * MIB + 3)
      yield* put("bundle", Stream.rechunk(Stream.fromArray([...cut(bytes, 65_537)]), 1))
      const parts = front.requests.filter(isPart)
      assert.strictEqual(parts.length, 3)
      const lengths = parts.map(({ headers }) => Number(headers["content-length"])).toSorted((a, b) => b - a)
      assert.deepStrictEqual(lengths, [16 * MIB, 16 * MIB, 8 * MIB + 3])
      for (const { headers } of parts) assert.isString(headers["x-amz-checksum-crc32"])
      assert.isTrue(bytes.equals(yield* bucket.get("bundle")))
    })
  )

  it.live("survives that the server is killed in the middle of it and started again", () =>
    Effect.gen(function* () {
      const running = yield* startS3Server(yield* temporaryDirectory)
      const bucket = yield* running.bucket
      const bytes = content(60 * MIB)
      const killed = yield* Deferred.make<void>()
      let given = 0
      const contents = streamed(bytes).pipe(
        Stream.tap((piece) =>
          Effect.suspend(() => {
            given += piece.length
            return given === 40 * MIB
              ? Effect.andThen(running.kill, Deferred.succeed(killed, undefined))
              : Effect.void
          })
        )
      )
      const fiber = yield* ExportStore.use((store) => store.put("bundle", contents)).pipe(
        Effect.provide(layerS3Exports(bucket.settings())),
        Effect.forkChild
      )
      yield* Deferred.await(killed)
      yield* running.start
      assert.deepStrictEqual(yield* Fiber.join(fiber), { sizeBytes: bytes.length })
      assert.isTrue(bytes.equals(yield* bucket.get("bundle")))
      assert.deepStrictEqual(yield* bucket.uploads, [])
    })
  )

  it.live("tries a part again that the store would not take at first", () =>
    Effect.gen(function* () {
      const { bucket, front, put } = yield* place
      front.rule = inOrder(
        [
          s3Error(503, "SlowDown"),
          { kind: "drop" },
          s3Error(400, "BadDigest"),
          s3Error(500, "InternalError")
        ],
        isPart
      )
      const bytes = content(33 * MIB)
      yield* put("bundle", streamed(bytes))
      assert.isTrue(bytes.equals(yield* bucket.get("bundle")))
      assert.deepStrictEqual(yield* bucket.uploads, [])
    })
  )

  it.live("ends the upload when the store takes no more", () =>
    Effect.gen(function* () {
      const { bucket, front, put } = yield* place
      front.rule = (request) =>
        isPart(request) && request.url.includes("partNumber=2") ? s3Error(403, "AccessDenied") : forward
      const error = yield* Effect.flip(put("bundle", streamed(content(50 * MIB))))
      assert.strictEqual(
        error.message,
        `object "bundle" cannot be stored: the store denies access to it (403); the credentials in host.env need s3:PutObject and s3:AbortMultipartUpload on bucket ${bucket.name}`
      )
      assert.deepStrictEqual(yield* bucket.uploads, [])
      assert.deepStrictEqual(yield* bucket.keys, [])
    })
  )

  it.live("knows its own object when the answer to the last request was lost", () =>
    Effect.gen(function* () {
      const { bucket, front, put } = yield* place
      front.rule = inOrder(
        [{ kind: "swallow" }],
        ({ method, url }) => method === "POST" && url.includes("uploadId=")
      )
      const bytes = content(20 * MIB)
      assert.deepStrictEqual(yield* put("bundle", streamed(bytes)), { sizeBytes: bytes.length })
      assert.isTrue(bytes.equals(yield* bucket.get("bundle")))
    })
  )

  it.live("does not take another's object for its own when its upload is gone", () =>
    Effect.gen(function* () {
      const { bucket, front, put } = yield* place
      yield* bucket.put("bundle", content(20 * MIB))
      front.rule = ({ method, url }) =>
        method === "POST" && url.includes("uploadId=") ? s3Error(404, "NoSuchUpload") : forward
      const error = yield* Effect.flip(put("bundle", streamed(content(20 * MIB))))
      assert.include(error.message, "the store no longer knows the upload (NoSuchUpload)")
    })
  )

  it.live("clears away what a killed daemon left of the same object, and of no other", () =>
    Effect.gen(function* () {
      const { bucket, front, put } = yield* place
      // An upload whose end does not reach the store is what a killed daemon leaves.
      front.rule = ({ method }) => (method === "DELETE" ? s3Error(403, "AccessDenied") : forward)
      const fails = Stream.concat(streamed(content(20 * MIB)), Stream.die(new Error("killed")))
      const warned: Array<string> = []
      const logger = Logger.make(({ message }) => void warned.push(String(message)))
      for (const key of ["bundle", "bundle-2"]) {
        yield* Effect.exit(put(key, fails)).pipe(Effect.provide(Logger.layer([logger])))
      }
      assert.strictEqual(warned.filter((line) => line.startsWith("parts of bundle")).length, 2)
      assert.deepStrictEqual([...(yield* bucket.uploads)].sort(), ["bundle", "bundle-2"])
      front.rule = () => forward
      yield* put("bundle", streamed(content(20 * MIB)))
      assert.deepStrictEqual(yield* bucket.uploads, ["bundle-2"])
    })
  )

  it.live("holds back a producer that is faster than the store", () =>
    Effect.gen(function* () {
      const { settings, front } = yield* place
      let given = 0
      const endless = Stream.unfold(0, () =>
        Effect.sync(() => {
          given += MIB
          return [Buffer.alloc(MIB), 0] as const
        })
      )
      const parts = Effect.callback<void>((resume) => {
        let seen = 0
        front.rule = (request) => {
          if (!isPart(request)) return forward
          seen += 1
          // Three are under way, and a fourth is not begun as long as none of them has ended.
          if (seen === 3) setImmediate(() => resume(Effect.void))
          return { kind: "hold" }
        }
      })
      const waiting = yield* Effect.forkChild(parts, { startImmediately: true })
      const fiber = yield* ExportStore.use((store) => store.put("bundle", endless)).pipe(
        Effect.provide(layerS3Exports(settings({ patience: "1 second" }))),
        Effect.forkChild
      )
      yield* Fiber.join(waiting)
      assert.isAtMost(given, 66 * MIB)
      front.rule = () => forward
      yield* Fiber.interrupt(fiber)
    })
  )
})

function* cut(bytes: Uint8Array, size: number): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}
