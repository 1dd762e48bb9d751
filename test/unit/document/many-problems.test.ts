/** Documents with more faults than anybody reads, whose judgement must end all the same, and in a refusal. */
import { assert, describe, it } from "@effect/vitest"
import { MAX_ISSUES } from "../../../src/document/decode.ts"
import { type AnyDocument, baseDocument, issuesOf, jsonBytes } from "./fixtures.ts"

const MANY = 200_000

const many = <A>(make: (index: number) => A): Array<A> =>
  Array.from({ length: MANY }, (_, index) => make(index))

const faults: ReadonlyArray<readonly [string, (document: AnyDocument) => void]> = [
  [
    "names of variables that are none",
    ({ instances: [first] }) => {
      first.config.command.environment = Object.fromEntries(many((index) => [`${index}`, ""]))
    }
  ],
  [
    "keys that are no text",
    (document) => {
      document.halves = Object.fromEntries(many((index) => [`\ud800${index}`, ""]))
    }
  ],
  [
    "layers, each with several faults",
    ({ instances: [first] }) => {
      first.layers = Array.from({ length: 9_999 }, () => ({ kind: "executable", digest: 1, objectKey: 2 }))
      first.config.ports = Array.from({ length: 9_999 }, () => ({ name: 1, guestPort: "x" }))
      first.config.command.args = Array.from({ length: 9_999 }, () => 1)
      first.hostnames = Array.from({ length: 9_999 }, () => ({ hostname: 1, kind: 2 }))
    }
  ],
  [
    "volumes of one name, and instances that ask for it",
    (document) => {
      const [volume] = document.volumes
      const [instance] = document.instances
      document.volumes = many((index) => ({ ...volume, appId: `app-${index}` }))
      document.instances = Array.from({ length: 20_000 }, (_, index) => ({
        ...instance,
        appId: `other-${index}`,
        volumeId: volume.volumeId
      }))
    }
  ],
  [
    "items of another kind",
    (document) => {
      document.checkpoints = many((index) => index)
    }
  ],
  [
    "parts that are none",
    (document) => {
      for (const part of ["volumes", "instances", "checkpoints", "exports"]) document[part] = 1
    }
  ]
]

describe("a document of very many", () => {
  for (const [what, spoil] of faults)
    it(`${what} is refused, with the first of them`, () => {
      const document = baseDocument()
      spoil(document)
      const issues = issuesOf(jsonBytes(document))
      assert.isNotEmpty(issues)
      assert.isAtMost(issues.length, MAX_ISSUES)
    })
})
