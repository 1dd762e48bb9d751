import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import fc from "fast-check"
import { desiredJsonSchema, UNSAYABLE_OF_DOCUMENT } from "../../../src/document/json-schema.ts"
import { ruleProblems } from "../../../src/document/rules.ts"
import { documents, mutated, mutations } from "./arbitraries.ts"
import { issuesOf, jsonBytes } from "./fixtures.ts"
import { type Operation, withOperations } from "./operations.ts"

const accepts = new Ajv2020({ strict: true, strictTypes: false, strictRequired: false }).compile(
  desiredJsonSchema()
)

const isWellFormed = (value: unknown): boolean => !/\\u[dD][89a-fA-F]/u.test(JSON.stringify(value))

/** What the decoder refuses and no schema can: names that clash, references that lead nowhere, broken texts. */
const isUnsayable = (document: unknown): boolean =>
  !isWellFormed(document) ||
  ruleProblems(document, 1000).some(({ message }) => /named twice|not among|belongs to app/u.test(message))

/** Fails unless schema and decoder agree, or disagree as they must. */
const compare = (document: unknown) => {
  const decoded = issuesOf(jsonBytes(document))
  if (isUnsayable(document)) assert.isNotEmpty(decoded)
  else assert.strictEqual(accepts(document), decoded.length === 0, JSON.stringify(accepts.errors ?? decoded))
}

describe("the JSON Schema of desired.json", () => {
  it("takes what the decoder takes, and refuses what it refuses", () => {
    fc.assert(
      fc.property(documents, mutations, (document, changes) => compare(mutated(document, changes))),
      { numRuns: 1000 }
    )
  })
  it("agrees with the decoder on every vector", () => {
    const { base, cases } = JSON.parse(
      readFileSync(new URL("../../vectors/desired.json", import.meta.url), "utf8")
    ) as { readonly base: unknown; readonly cases: ReadonlyArray<{ readonly ops: ReadonlyArray<Operation> }> }
    for (const { ops } of cases) compare(withOperations(base, ops))
  })
  it("says how many rules it cannot say", () => {
    assert.lengthOf(UNSAYABLE_OF_DOCUMENT, 6)
  })
  it("describes every type, and every field whose type does not describe it", () => {
    const { $defs } = desiredJsonSchema() as {
      readonly $defs: Readonly<Record<string, SchemaNode>>
    }
    type SchemaNode = {
      readonly $ref?: string
      readonly enum?: ReadonlyArray<string>
      readonly description?: string
      readonly properties?: Readonly<Record<string, SchemaNode>>
    }
    const described = (node: SchemaNode): boolean =>
      node.description !== undefined ||
      node.enum?.length === 1 ||
      (node.$ref !== undefined && described($defs[node.$ref.slice("#/$defs/".length)] ?? {}))
    const silent = Object.entries($defs).flatMap(([name, definition]) => [
      ...(described(definition) || name === "ExecutablePath" ? [] : [name]),
      ...Object.entries(definition.properties ?? {}).flatMap(([field, node]) =>
        described(node) || node.$ref === "#/$defs/ExecutablePath" ? [] : [`${name}.${field}`]
      )
    ])
    assert.deepStrictEqual(silent, [])
  })
})
