import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import { checkDocument, decodeDocument, MAX_WARNINGS } from "../../../src/document/decode.ts"
import { documents } from "./arbitraries.ts"
import { baseDocument, jsonBytes } from "./fixtures.ts"

type Fields = Record<string, unknown>

/** The base document with fields added to what stands at the keys. */
const withFields = (keys: ReadonlyArray<string | number>, fields: Fields): unknown => {
  const document = structuredClone(baseDocument()) as Fields
  const target = keys.reduce<Fields>((value, key) => value[key] as Fields, document)
  Object.assign(target, fields)
  return document
}

const warned = (document: unknown) => {
  const { decoded, warnings } = checkDocument(jsonBytes(document))
  return { valid: Result.isSuccess(decoded), paths: warnings.map(({ path }) => path), warnings }
}

describe("fields of a document that are ignored", () => {
  it("are warned of where they look like a slip for an optional one, each with its place", () => {
    const slips: ReadonlyArray<readonly [keys: ReadonlyArray<string | number>, slip: string, meant: string]> =
      [
        [[], "Revision", "revision"],
        [["instances", 0], "activaton", "activation"],
        [["instances", 0], "idle_timeout_ms", "idleTimeoutMs"],
        [["instances", 0, "config"], "port", "ports"],
        [["volumes", 0], "initialContent", "initialContents"]
      ]
    for (const [keys, slip, meant] of slips) {
      const document = withFields(keys, { [slip]: null })
      const { paths, valid, warnings } = warned(
        meant === "revision" ? { ...(document as Fields), revision: undefined } : document
      )
      assert.isTrue(valid)
      assert.deepStrictEqual(paths, [[[], ...keys, slip].join("/")])
      assert.include(warnings[0]?.message, `did you mean "${meant}"?`)
      assert.isAbove(warnings[0]?.line ?? 0, 0)
    }
  })
  it("are not warned of where a newer writer may have named them", () => {
    for (const [keys, name] of [
      [[], "$schema"],
      [[], "somethingNewer"],
      [["instances", 0, "layers", 0], "sizeBytes"],
      [["instances", 0], "owner"],
      [["volumes", 0], "backupPolicy"]
    ] as const)
      assert.deepStrictEqual(warned(withFields(keys, { [name]: 1 })), {
        valid: true,
        paths: [],
        warnings: []
      })
  })
  it("are not warned of where what they look like is named too", () => {
    assert.isEmpty(warned(withFields([], { revision: "r1", revisions: ["r1"] })).paths)
  })
  it("are warned of a hundred times and no more, however many and however long", () => {
    const items = Array.from({ length: 2 * MAX_WARNINGS }, (_, n) => ({
      volumeId: `v${n}`,
      appId: "a",
      sizeBytes: 1,
      desiredState: "present",
      initialContent: null
    }))
    const wide = Object.fromEntries(Array.from({ length: 50_000 }, (_, n) => [`${n}`.padEnd(90, "x"), 0]))
    const { paths } = warned({ ...baseDocument(), ...wide, volumes: items, instances: [], exports: [] })
    assert.lengthOf(paths, MAX_WARNINGS)
  })
  it("change nothing of what a document is read as", () => {
    fc.assert(
      fc.property(documents, fc.boolean(), (document, odd) => {
        const bytes = jsonBytes(odd ? { ...(document as Fields), revison: 1, volume: [] } : document)
        const { decoded, warnings } = checkDocument(bytes)
        assert.deepStrictEqual(decoded, decodeDocument(bytes))
        if (!odd) assert.isEmpty(warnings)
      })
    )
  })
})
