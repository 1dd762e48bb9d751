/**
 * An artifact of 1 GiB out of an S3 server, verified and on the disk: our store against curl, tee and openssl. Both in
 * turns, from the same server on this machine, onto the same disk.
 */
import { createHash } from "node:crypto"
import { mkdirSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Redacted, Stream } from "effect"
import { ChildProcess } from "effect/process"
import { layerS3Exports } from "../layers/store/s3/layer.ts"
import { attempt, Problem } from "../scripts/local/problem.ts"
import { ExportStore } from "../src/services/ExportStore.ts"
import { startS3Server, type TestBucket } from "../test/support/s3-server.ts"
import type { Bench } from "./support/bench.ts"

const BYTES = 2 ** 30
const PIECE = 2 ** 20
const ROUNDS = 5
const KEY = "object"

/** Bytes that no step of the way can make shorter, and their digest. */
const contents = (hash: ReturnType<typeof createHash>) =>
  Stream.unfold(0, (index) =>
    Effect.sync(() => {
      if (index * PIECE === BYTES) return undefined
      const piece = Buffer.alloc(PIECE)
      let state = index + 1
      for (let at = 0; at < PIECE; at += 4) {
        state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
        piece.writeUInt32LE(state, at)
      }
      hash.update(piece)
      return [piece, index + 1] as const
    })
  )

const fails = (what: string) =>
  Effect.mapError(
    (cause: { readonly message: string }) => new Problem({ message: `${what}: ${cause.message}` })
  )

/** Runs a command to its end; gives what it wrote. */
const output = (
  what: string,
  command: string,
  args: ReadonlyArray<string>,
  env: Record<string, string> = {}
) =>
  Effect.gen(function* () {
    const child = yield* ChildProcess.make(command, args, {
      stdin: "ignore",
      stderr: "inherit",
      env,
      extendEnv: true,
      forceKillAfter: "2 seconds"
    })
    const text = yield* Stream.mkString(Stream.decodeText(child.stdout))
    const code = yield* child.exitCode
    if (code !== 0) return yield* Effect.fail(new Error(`exit code ${code}`))
    return text
  }).pipe(Effect.scoped, fails(what))

/** The pipeline that it is measured against: the same three things, each by a program that does nothing else. */
const PIPELINE =
  'set -e; curl -sSf --aws-sigv4 "aws:amz:$REGION:s3" --user "$KEY:$SECRET" -H "x-amz-content-sha256: UNSIGNED-PAYLOAD" "$URL" | tee "$FILE" | openssl dgst -sha256 -r; sync "$FILE"'

const theirs = (bucket: TestBucket, folder: string) =>
  Effect.gen(function* () {
    const { accessKeyId, endpoint, region, secretAccessKey } = bucket.settings()
    const began = performance.now()
    const said = yield* output("curl, tee and openssl", "sh", ["-c", PIPELINE], {
      REGION: region,
      KEY: accessKeyId,
      SECRET: Redacted.value(secretAccessKey),
      URL: `${endpoint}/${bucket.name}/${KEY}`,
      FILE: join(folder, "theirs")
    })
    const seconds = (performance.now() - began) / 1000
    rmSync(join(folder, "theirs"), { force: true })
    return { seconds, digest: said.slice(0, 64) }
  })

const ours = (bucket: TestBucket, folder: string, digest: string) =>
  Effect.gen(function* () {
    const { accessKeyId, endpoint, region, secretAccessKey } = bucket.settings()
    const stateDir = join(folder, "ours")
    mkdirSync(stateDir)
    const said = yield* output(
      "our fetch",
      process.execPath,
      [join(import.meta.dirname, "fetch", "ours.ts"), `s3://${bucket.name}`, KEY, digest, stateDir],
      {
        AWS_REGION: region,
        AWS_ACCESS_KEY_ID: accessKeyId,
        AWS_SECRET_ACCESS_KEY: Redacted.value(secretAccessKey),
        AWS_ENDPOINT_URL: endpoint ?? ""
      }
    )
    rmSync(stateDir, { recursive: true })
    const { idleMib, peakMib, seconds } = JSON.parse(said)
    return { seconds: Number(seconds), peakMib: Number(peakMib), idleMib: Number(idleMib) }
  })

export const bench: Bench = {
  about: `${ROUNDS} rounds in turns: an object of 1 GiB from a bucket of versitygw on loopback into a file, its sha-256 computed, the file flushed to the disk; against curl | tee FILE | openssl dgst -sha256, then sync FILE`,
  run: (say) =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        attempt("no folder for the bench", () => mkdtempSync(join(tmpdir(), "nibrunner-fetch-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
      )
      const server = yield* startS3Server(join(folder, "server"))
      const bucket = yield* server.bucket
      const hash = createHash("sha256")
      yield* ExportStore.use((store) => store.put(KEY, contents(hash))).pipe(
        Effect.provide(layerS3Exports(bucket.settings())),
        fails("the object could not be made")
      )
      const digest = hash.digest("hex")
      yield* theirs(bucket, folder)

      const ratios: Array<number> = []
      const peaks: Array<number> = []
      for (let round = 1; round <= ROUNDS; round++) {
        const first = round % 2 === 1 ? yield* theirs(bucket, folder) : undefined
        const own = yield* ours(bucket, folder, digest)
        const pipeline = first ?? (yield* theirs(bucket, folder))
        if (pipeline.digest !== digest) return yield* new Problem({ message: "the pipeline got other bytes" })
        ratios.push(own.seconds / pipeline.seconds)
        peaks.push(own.peakMib)
        yield* say(
          `round ${round}: pipeline ${pipeline.seconds.toFixed(2)} s, ours ${own.seconds.toFixed(2)} s, peak ${own.peakMib.toFixed(0)} MiB (${own.idleMib.toFixed(0)} before)`
        )
      }
      return {
        time: { what: "time, ours ÷ pipeline", values: ratios, atMost: 1.1 },
        peakMib: { what: "peak memory of our process, MiB", values: peaks }
      }
    })
}
