import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import fc from "fast-check"
import { verdictJson, verdictListing } from "../../../src/cli/check.ts"
import { judgeDocument } from "../../../src/cli/verdict-document.ts"
import { decodeDocument } from "../../../src/document/decode.ts"
import { HostDesiredState } from "../../../src/document/schema.ts"
import { documents, mutated, mutatedText, mutations, SECRET, textMutation } from "./arbitraries.ts"
import { accepted, bytesOf, issuesOf, jsonBytes } from "./fixtures.ts"

const encode = Schema.encodeSync(HostDesiredState)

/** All that the command line would print of a file. */
const printed = (bytes: Uint8Array): string => {
  const verdict = judgeDocument(bytes)
  return `${verdictListing("desired.json", verdict)}\n${verdictJson("desired.json", verdict)}`
}

describe("any document", () => {
  it("that is right is accepted", () => {
    fc.assert(fc.property(documents, (document) => assert.isEmpty(issuesOf(jsonBytes(document)))))
  })
  it("that was accepted is the same when it is written and read again", () => {
    fc.assert(
      fc.property(documents, (document) => {
        const once = encode(accepted(document))
        assert.deepStrictEqual(encode(accepted(once)), once)
      })
    )
  })
  it("that is wrong is refused with places inside it, and without a secret", () => {
    fc.assert(
      fc.property(documents, mutations, fc.constantFrom(undefined, 1), (document, changes, indent) => {
        const text = JSON.stringify(mutated(document, changes), null, indent)
        const lines = text.split("\n")
        for (const { column, line, message } of issuesOf(bytesOf(text))) {
          assert.isAtLeast(line ?? 0, 1)
          assert.isAtMost(column ?? 0, Array.from(lines[(line ?? 0) - 1] ?? "").length + 1)
          assert.isBelow(message.length, 512)
        }
        assert.notInclude(printed(bytesOf(text)), SECRET)
      }),
      { numRuns: 300 }
    )
  })
  it("whose text was damaged is read or refused, and without a secret", () => {
    fc.assert(
      fc.property(documents, textMutation, fc.constantFrom(undefined, 1), (document, change, indent) => {
        const bytes = bytesOf(mutatedText(JSON.stringify(document, null, indent), change))
        assert.notInclude(printed(bytes), SECRET)
      }),
      { numRuns: 500 }
    )
  })
  it("whose bytes were damaged is read or refused", () => {
    fc.assert(
      fc.property(documents, fc.nat(), fc.nat({ max: 255 }), (document, where, byte) => {
        const bytes = jsonBytes(document)
        bytes[where % bytes.length] = byte
        decodeDocument(bytes)
      })
    )
  })
  it("is no document at all, and is refused", () => {
    fc.assert(fc.property(fc.uint8Array(), (bytes) => Result.isFailure(decodeDocument(bytes))))
  })
  it("is read the same with the one in force at hand, whose unchanged items are kept", () => {
    fc.assert(
      fc.property(documents, mutations, (document, changes) => {
        const inForce = accepted(document)
        const next = jsonBytes(mutated(document, changes))
        const afresh = decodeDocument(next)
        const withIt = decodeDocument(next, inForce)
        assert.strictEqual(Result.isSuccess(withIt), Result.isSuccess(afresh))
        if (Result.isSuccess(withIt) && Result.isSuccess(afresh))
          assert.deepStrictEqual(encode(withIt.success), encode(afresh.success))
        if (Result.isFailure(withIt) && Result.isFailure(afresh))
          assert.deepStrictEqual(withIt.failure.issues, afresh.failure.issues)
      })
    )
  })
})
