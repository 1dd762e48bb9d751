import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import { Ajv2020 } from "ajv/dist/2020.js"
import { Result } from "effect"
import fc from "fast-check"
import { decodeConfig } from "../../../src/config/decode.ts"
import { configJsonSchema, TAKEN_NEVERTHELESS, UNSAYABLE_OF_CONFIG } from "../../../src/config/json-schema.ts"
import { readToml, TomlFloat } from "../../../src/config/toml.ts"
import { configMutations, configs, mutatedConfig } from "./arbitraries.ts"
import { type ConfigOperation, type DottedKeys, tomlOf, withOperations } from "./toml-text.ts"

const accepts = new Ajv2020({ strict: true, strictTypes: false, strictRequired: false }).compile(
  configJsonSchema()
)

/** The JSON that a TOML text stands for: JSON Schema takes 1.0 for an integer, so a float is kept as one that is none. */
const jsonOf = (toml: string): unknown => {
  const plain = (value: unknown): unknown => {
    if (value instanceof TomlFloat) return Number.isInteger(value.value) ? value.value + 0.5 : value.value
    if (value instanceof Date) return { date: String(value) }
    if (Array.isArray(value)) return value.map(plain)
    return typeof value === "object" && value !== null
      ? Object.fromEntries(Object.entries(value).map(([key, member]) => [key, plain(member)]))
      : value
  }
  return plain(Result.getOrThrow(readToml(toml)))
}

/** What the decoder refuses and no schema can. */
const isUnsayable = (message: string, toml: string): boolean =>
  /belong to apps|as is proxy\.http\.port|needs a directory of its own|time_zone is ".*IANA time zone/u.test(
    message
  ) ||
  // A schema counts characters, and here they are fewer than the bytes.
  (/has \d+ bytes|at most 107 bytes/u.test(message) && /[^\x00-\x7f]/u.test(toml))

const compare = (config: DottedKeys) => {
  const toml = tomlOf(config)
  const decoded = decodeConfig(toml, "config.toml")
  const issues = Result.isFailure(decoded) ? decoded.failure.issues : []
  const sayable = issues.filter(({ message }) => !isUnsayable(message, toml))
  assert.strictEqual(
    accepts(jsonOf(toml)),
    sayable.length === 0,
    `${toml}\n${JSON.stringify(accepts.errors ?? issues)}`
  )
}

describe("the JSON Schema of config.toml", () => {
  it("takes what the decoder takes, and refuses what it refuses", () => {
    fc.assert(
      fc.property(configs, configMutations, (config, changes) => compare(mutatedConfig(config, changes))),
      { numRuns: 1000 }
    )
  })
  it("agrees with the decoder on every vector, but for those that no schema can tell", () => {
    const { base, cases } = JSON.parse(
      readFileSync(new URL("../../vectors/config.json", import.meta.url), "utf8")
    ) as {
      readonly base: DottedKeys
      readonly cases: ReadonlyArray<{ readonly ops: ReadonlyArray<ConfigOperation> }>
    }
    for (const { ops } of cases) compare(withOperations(base, ops))
  })
  it("says how many rules it cannot say", () => {
    assert.lengthOf(UNSAYABLE_OF_CONFIG, 5)
    assert.lengthOf(TAKEN_NEVERTHELESS, 1)
  })
  it("describes every section and key, and gives every key an example", () => {
    type SchemaNode = {
      readonly description?: string
      readonly examples?: ReadonlyArray<unknown>
      readonly type?: string
      readonly properties?: Readonly<Record<string, SchemaNode>>
    }
    const { $defs } = configJsonSchema() as { readonly $defs: Readonly<Record<string, SchemaNode>> }
    const silent = (node: SchemaNode, path: string): ReadonlyArray<string> =>
      Object.entries(node.properties ?? {}).flatMap(([key, member]) => [
        ...(member.description === undefined ? [`${path}${key}`] : []),
        ...(member.type !== "object" && member.examples === undefined
          ? [`${path}${key} has no example`]
          : []),
        ...silent(member, `${path}${key}.`)
      ])
    assert.deepStrictEqual(silent($defs.HostConfig ?? {}, ""), [])
  })
})
