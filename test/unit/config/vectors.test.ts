import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { decodeConfig } from "../../../src/config/decode.ts"
import { type ConfigOperation, type DottedKeys, tomlOf, withOperations } from "./toml-text.ts"

const vectors = JSON.parse(readFileSync(new URL("../../vectors/config.json", import.meta.url), "utf8")) as {
  readonly base: DottedKeys
  readonly cases: ReadonlyArray<{
    readonly name: string
    readonly ops: ReadonlyArray<ConfigOperation>
    readonly ok: boolean
    readonly names?: string
  }>
}

describe("the vectors of config.toml", () => {
  for (const { name, names, ok, ops } of vectors.cases)
    it.effect(ok ? `${name} is accepted` : `${name} is refused at ${names}`, () =>
      Effect.sync(() => {
        const text = tomlOf(withOperations(vectors.base, ops))
        const decoded = decodeConfig(text, "config.toml")
        if (ok) assert.isTrue(Result.isSuccess(decoded), String(decoded))
        else {
          assert.isTrue(Result.isFailure(decoded))
          const issues = Result.isFailure(decoded) ? decoded.failure.issues : []
          assert.isNotEmpty(issues)
          // One fault is told once, and nothing else is blamed for it.
          assert.isTrue(
            issues.every(({ path }) => path.startsWith(names ?? "?")),
            JSON.stringify(issues)
          )
        }
      })
    )
})
