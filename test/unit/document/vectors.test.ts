import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { decodeDocument } from "../../../src/document/decode.ts"
import { type Operation, withOperations } from "./operations.ts"

const vectors = JSON.parse(readFileSync(new URL("../../vectors/desired.json", import.meta.url), "utf8")) as {
  readonly base: unknown
  readonly cases: ReadonlyArray<{
    readonly name: string
    readonly ops: ReadonlyArray<Operation>
    readonly ok: boolean
    readonly names?: string
  }>
}

describe("the vectors of desired.json", () => {
  for (const { name, names, ok, ops } of vectors.cases)
    it.effect(ok ? `${name} is accepted` : `${name} is refused at ${names || "the root"}`, () =>
      Effect.sync(() => {
        const document = withOperations(vectors.base, ops)
        const decoded = decodeDocument(new TextEncoder().encode(JSON.stringify(document)))
        if (ok) assert.isTrue(Result.isSuccess(decoded), String(decoded))
        else {
          assert.isTrue(Result.isFailure(decoded))
          const issues = Result.isFailure(decoded) ? decoded.failure.issues : []
          assert.isTrue(
            issues.some(({ path }) => path.startsWith(names ?? "")),
            JSON.stringify(issues)
          )
        }
      })
    )
})
