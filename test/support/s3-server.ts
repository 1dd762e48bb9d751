/** The S3 server that stores are tried with: Versity's gateway on a directory, in a process of its own. */
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, openSync } from "node:fs"
import * as fs from "node:fs/promises"
import { createServer } from "node:net"
import * as path from "node:path"
import {
  CreateBucketCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  S3Client
} from "@aws-sdk/client-s3"
import { Effect, Redacted, Schedule } from "effect"
import type { S3Settings } from "../../layers/store/s3/settings.ts"
import { s3Server } from "../../scripts/s3-server-path.mjs"
import { killed } from "./child.ts"

const REGION = "eu-test-1"
const ACCESS_KEY = "AKIDTEST"
const SECRET_KEY = "the-secret-of-the-tests"

/** What the tests do with a bucket by themselves, with a client of their own. */
export interface TestBucket {
  readonly name: string
  /** How a store is told to reach the bucket; by way of another port when one is named. */
  readonly settings: (change?: Partial<S3Settings>, port?: number) => S3Settings
  readonly put: (key: string, bytes: Uint8Array) => Effect.Effect<void>
  readonly get: (key: string) => Effect.Effect<Uint8Array>
  readonly remove: (key: string) => Effect.Effect<void>
  readonly keys: Effect.Effect<ReadonlyArray<string>>
  /** Keys of multipart uploads that were neither completed nor aborted. */
  readonly uploads: Effect.Effect<ReadonlyArray<string>>
}

export interface S3Server {
  readonly port: number
  /** Starts it again on the same port and directory after `kill`; done when it answers. */
  readonly start: Effect.Effect<void>
  /** SIGKILL; done when it is gone. */
  readonly kill: Effect.Effect<void>
  /** A new bucket. */
  readonly bucket: Effect.Effect<TestBucket>
}

/** A port that nobody listens on just now. */
export const freePort: Effect.Effect<number> = Effect.callback((resume) => {
  const server = createServer()
  server.listen(0, "127.0.0.1", () => {
    const address = server.address()
    server.close(() =>
      resume(Effect.succeed(typeof address === "object" && address !== null ? address.port : 0))
    )
  })
})

const answers = (port: number) =>
  Effect.tryPromise(() => fetch(`http://127.0.0.1:${port}/`).then((answer) => answer.arrayBuffer())).pipe(
    Effect.retry(Schedule.max([Schedule.spaced("20 millis"), Schedule.recurs(1500)])),
    Effect.orDie
  )

/** Starts it with its files in `directory`; killed with the scope. */
export const startS3Server = (directory: string) =>
  Effect.gen(function* () {
    if (!existsSync(s3Server)) {
      return yield* Effect.die(new Error(`there is no ${s3Server}: run node scripts/s3-server.mjs`))
    }
    const port = yield* freePort
    const root = path.join(directory, "objects")
    const meta = path.join(directory, "meta")
    yield* Effect.promise(() => Promise.all([root, meta].map((each) => fs.mkdir(each, { recursive: true }))))
    let child: ChildProcess | undefined

    const kill = Effect.suspend(() => (child === undefined ? Effect.void : killed(child)))
    const start = Effect.suspend(() => {
      const log = openSync(path.join(directory, "log"), "a")
      child = spawn(
        s3Server,
        [
          "--port",
          `127.0.0.1:${port}`,
          "--region",
          REGION,
          "--keep-alive",
          "--quiet",
          "posix",
          "--sidecar",
          meta,
          root
        ],
        {
          stdio: ["ignore", log, log],
          env: { ROOT_ACCESS_KEY_ID: ACCESS_KEY, ROOT_SECRET_ACCESS_KEY: SECRET_KEY }
        }
      )
      return Effect.asVoid(answers(port))
    })
    yield* Effect.acquireRelease(start, () => kill)

    const client = yield* Effect.acquireRelease(
      Effect.sync(
        () =>
          new S3Client({
            region: REGION,
            endpoint: `http://127.0.0.1:${port}`,
            forcePathStyle: true,
            credentials: { accessKeyId: ACCESS_KEY, secretAccessKey: SECRET_KEY }
          })
      ),
      (made) => Effect.sync(() => made.destroy())
    )
    let buckets = 0
    const server: S3Server = {
      port,
      start,
      kill,
      bucket: Effect.suspend(() => {
        buckets += 1
        const name = `bucket-${buckets}`
        return Effect.as(
          Effect.promise(() => client.send(new CreateBucketCommand({ Bucket: name }))),
          testBucket(client, port, name)
        )
      })
    }
    return server
  })

const testBucket = (client: S3Client, ownPort: number, name: string): TestBucket => ({
  name,
  settings: (change = {}, port = ownPort) => ({
    bucket: name,
    prefix: "",
    region: REGION,
    accessKeyId: ACCESS_KEY,
    secretAccessKey: Redacted.make(SECRET_KEY),
    sessionToken: undefined,
    endpoint: `http://127.0.0.1:${port}`,
    pathStyle: true,
    ...change
  }),
  put: (key, bytes) =>
    Effect.promise(() => client.send(new PutObjectCommand({ Bucket: name, Key: key, Body: bytes }))),
  get: (key) =>
    Effect.promise(async () => {
      const { Body } = await client.send(new GetObjectCommand({ Bucket: name, Key: key }))
      return (await Body?.transformToByteArray()) ?? new Uint8Array(0)
    }),
  remove: (key) => Effect.promise(() => client.send(new DeleteObjectCommand({ Bucket: name, Key: key }))),
  keys: Effect.promise(async () => {
    const { Contents } = await client.send(new ListObjectsV2Command({ Bucket: name }))
    return (Contents ?? []).map(({ Key }) => Key ?? "")
  }),
  uploads: Effect.promise(async () => {
    const { Uploads } = await client.send(new ListMultipartUploadsCommand({ Bucket: name }))
    return (Uploads ?? []).map(({ Key }) => Key ?? "")
  })
})
