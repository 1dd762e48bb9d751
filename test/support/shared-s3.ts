/** One S3 server for all tests of a file. */
import { mkdtempSync, rmSync } from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { Effect, Exit, Scope } from "effect"
import { afterAll, beforeAll } from "vitest"
import { type S3Server, startS3Server } from "./s3-server.ts"

/** Gives the server to tests that run, not to those that are being described. */
export const sharedS3Server = (): Effect.Effect<S3Server> => {
  const scope = Scope.makeUnsafe()
  let directory: string | undefined
  let server: S3Server | undefined
  beforeAll(async () => {
    directory = mkdtempSync(path.join(os.tmpdir(), "nibrunner-s3-"))
    server = await Effect.runPromise(startS3Server(directory).pipe(Scope.provide(scope)))
  })
  afterAll(async () => {
    await Effect.runPromise(Scope.close(scope, Exit.void))
    if (directory !== undefined) rmSync(directory, { recursive: true, force: true })
  })
  return Effect.suspend(() =>
    server === undefined ? Effect.die(new Error("no server")) : Effect.succeed(server)
  )
}
