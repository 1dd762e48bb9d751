import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted, Stream } from "effect"
import * as fc from "fast-check"
import { inParts, type PartsPlan, planParts } from "../../../layers/store/s3/parts.ts"
import { s3Settings } from "../../../layers/store/s3/settings.ts"

const small: PartsPlan = { partBytes: 7, maxParts: 10_000, concurrency: 2 }

describe("the parts of an upload", () => {
  it("are those of the bytes alone, however the stream is cut", () =>
    fc.assert(
      fc.asyncProperty(
        fc.array(fc.array(fc.uint8Array({ maxLength: 30 }), { minLength: 1, maxLength: 4 }), {
          maxLength: 8
        }),
        (chunks) =>
          Effect.gen(function* () {
            const contents = Stream.flatten(Stream.fromArray(chunks.map((chunk) => Stream.fromArray(chunk))))
            const parts = yield* contents.pipe(
              inParts(small, "too many"),
              Stream.map(({ bytes, number, only, release }) => {
                const copy = Buffer.from(bytes)
                release()
                return { copy, number, only }
              }),
              Stream.runCollect
            )
            const all = Buffer.concat(chunks.flat())
            assert.isTrue(all.equals(Buffer.concat(parts.map(({ copy }) => copy))))
            assert.strictEqual(parts.length, Math.max(1, Math.ceil(all.length / 7)))
            for (const [index, part] of parts.entries()) {
              assert.strictEqual(part.number, index + 1)
              assert.strictEqual(part.only, parts.length === 1)
              if (index < parts.length - 1) assert.strictEqual(part.copy.length, 7)
            }
          }).pipe(Effect.runPromise)
      )
    ))

  it.effect("run out with an error before one too many is made", () =>
    Effect.gen(function* () {
      const count = (length: number) =>
        Stream.succeed(new Uint8Array(length)).pipe(
          inParts({ ...small, maxParts: 3 }, "too many"),
          Stream.tap(({ release }) => Effect.sync(release)),
          Stream.runCount
        )
      assert.strictEqual(yield* count(21), 3)
      assert.strictEqual(yield* Effect.flip(count(22)), "too many")
    })
  )

  it("hold what is expected, are never below S3's least size, and stay within their memory", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 4 * 2 ** 40 }), (expected) => {
        const { concurrency, maxParts, partBytes } = planParts(expected)
        assert.isAtLeast(partBytes * maxParts, expected)
        assert.isAtLeast(partBytes, 5 * 2 ** 20)
        assert.isTrue(concurrency === 1 || concurrency * partBytes <= 48 * 2 ** 20)
      })
    )
  })
})

describe("the settings of a bucket", () => {
  const secrets = { region: "eu-central-1", accessKeyId: "key", secretAccessKey: Redacted.make("secret") }
  const settings = (url: string, environment: Record<string, string> = {}) =>
    s3Settings(url, secrets, environment)

  it("take bucket and prefix of the address", () => {
    assert.deepInclude(settings("s3://box"), { bucket: "box", prefix: "" })
    assert.deepInclude(settings("s3://box/a/b"), { bucket: "box", prefix: "a/b/" })
    assert.deepInclude(settings("s3://box/a/"), { bucket: "box", prefix: "a/" })
  })

  it("put the bucket into the path where the endpoint is another's or the name fits no host's", () => {
    assert.isFalse(settings("s3://box").pathStyle)
    assert.isTrue(settings("s3://box.example").pathStyle)
    assert.isTrue(settings("s3://Box_1").pathStyle)
    assert.isTrue(settings("s3://box", { AWS_ENDPOINT_URL: "http://127.0.0.1:9" }).pathStyle)
  })

  it("follow AWS's variables, the one for S3 before the general one", () => {
    const both = { AWS_ENDPOINT_URL: "http://all", AWS_ENDPOINT_URL_S3: "http://s3" }
    assert.strictEqual(settings("s3://box", both).endpoint, "http://s3")
    assert.strictEqual(settings("s3://box", { AWS_ENDPOINT_URL: "http://all" }).endpoint, "http://all")
    assert.isUndefined(
      settings("s3://box", { ...both, AWS_IGNORE_CONFIGURED_ENDPOINT_URLS: "true" }).endpoint
    )
    assert.isUndefined(settings("s3://box").sessionToken)
    const token = settings("s3://box", { AWS_SESSION_TOKEN: "token" }).sessionToken
    assert.strictEqual(token && Redacted.value(token), "token")
  })
})
