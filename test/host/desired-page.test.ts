/** The first example of docs/desired.md on a real host, as it stands but for the digest. */
import { mkdirSync, readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { pageExamples } from "../support/desired-page.ts"
import { buildTenant } from "../tenant/build.ts"
import { awaitState, makeHost, put, putObject, runDaemon } from "./harness.ts"

const objectKey = "shop/server"
const placeholder = "0".repeat(64)

layer(NodeServices.layer, { excludeTestServices: true })("the smallest document of docs/desired.md", (it) => {
  it.effect("runs, and its app answers at the port that the report names", () =>
    Effect.gen(function* () {
      const host = yield* makeHost()
      const program = readFileSync(yield* buildTenant)
      mkdirSync(dirname(join(host.artifacts, objectKey)), { recursive: true })
      const digest = putObject(host, objectKey, program)
      yield* runDaemon(host)
      const text = JSON.stringify(pageExamples()[0])
      assert.include(text, placeholder)
      yield* put(host, JSON.parse(text.replace(placeholder, digest)))
      const { hostPort } = yield* awaitState(host, "shop", "running")
      const answer = yield* Effect.tryPromise(() => fetch(`http://127.0.0.1:${hostPort}/`))
      assert.strictEqual(answer.status, 200)
    })
  )
})
