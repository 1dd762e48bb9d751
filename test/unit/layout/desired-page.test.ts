import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import { checkDocument, MAX_WARNINGS } from "../../../src/document/decode.ts"
import { namesIn } from "../../../src/document/names.ts"
import {
  AppConfig,
  DesiredInstance,
  DesiredVolume,
  HostDesiredState,
  MAX_LAYERS
} from "../../../src/document/schema.ts"
import { SMALLEST_MEMORY_MIB, unrunnableIn } from "../../../src/reconcile/unrunnable.ts"
import { SMALLEST_VOLUME } from "../../../src/volume/size.ts"
import { desiredPage, pageExamples } from "../../support/desired-page.ts"
import { type AnyDocument, jsonBytes } from "../document/fixtures.ts"
import { read } from "./imports.ts"

const examples = pageExamples()

/** Where a part of a document may belong: what its keys are those of. */
const places = (document: AnyDocument) =>
  [
    [HostDesiredState, document],
    [DesiredInstance, document.instances[0]],
    [AppConfig, document.instances[0].config],
    [DesiredVolume, document.volumes[0]]
  ] as const

/** The page's whole document with an example in its place. */
const withExample = (example: Record<string, unknown>): AnyDocument => {
  const document: AnyDocument = structuredClone(examples[0])
  const place = places(document).find(([schema]) => Object.keys(example).every((key) => key in schema.fields))
  assert.isDefined(place, `no part of a document has the keys ${Object.keys(example)}`)
  Object.assign(place?.[1], example)
  return document
}

const strictly = Schema.decodeUnknownResult(HostDesiredState, { onExcessProperty: "error" })

describe("the page on desired.json", () => {
  it("begins with a whole document, and has examples of every part", () => {
    assert.isTrue(Result.isSuccess(strictly(examples[0])))
    const shown = new Set(examples.flatMap((example) => Object.keys(example)))
    for (const part of [
      "activation",
      "layers",
      "command",
      "ports",
      "healthCheck",
      "hostnames",
      "initialContents",
      "checkpoints",
      "exports"
    ])
      assert.isTrue(shown.has(part), part)
  })

  it.each(examples.map((example) => [Object.keys(example).join(", "), example] as const))(
    "shows what a host accepts and runs, without a field that it does not know: %s",
    (_, example) => {
      const document = withExample(example)
      const { decoded, warnings } = checkDocument(jsonBytes(document), (accepted) =>
        unrunnableIn(accepted, MAX_WARNINGS)
      )
      assert.isTrue(Result.isSuccess(decoded), JSON.stringify(decoded))
      assert.deepStrictEqual(warnings, [])
      assert.isTrue(Result.isSuccess(strictly(document)))
    }
  )

  it("names every field that there is, and every value that a field may have", () => {
    const schema = read("deploy/schema/desired.schema.json")
    const values = [...schema.matchAll(/"(?:const|enum)": (?:"([^"]+)"|\[([^\]]*)\])/gu)].flatMap(
      ([, one, several]) =>
        one === undefined
          ? [...(several ?? "").matchAll(/"([^"]+)"/gu)].map(([, value]) => value ?? "")
          : [one]
    )
    const fields = namesIn(HostDesiredState.ast)
    assert.isTrue(fields.every((field) => schema.includes(`"${field}"`)))
    assert.includeMembers(values, ["running", "traffic-idle", "boot-completed", "custom"])
    const unnamed = [...fields, ...values].filter(
      (name) => !new RegExp(`\`(?:[a-zA-Z]+\\.)?${name}\``, "u").test(desiredPage)
    )
    assert.deepStrictEqual([...new Set(unnamed)], [])
  })

  it("tells the bounds that the code has", () => {
    assert.include(desiredPage, `at least ${SMALLEST_MEMORY_MIB}**`)
    assert.include(desiredPage, `less than ${SMALLEST_MEMORY_MIB} MiB`)
    assert.include(desiredPage, `at least ${SMALLEST_VOLUME} (8 MiB)`)
    assert.include(desiredPage, `1 to ${MAX_LAYERS} images`)
    assert.include(
      read("deploy/schema/desired.schema.json"),
      `at least ${SMALLEST_MEMORY_MIB}, which a guest`
    )
  })
})
