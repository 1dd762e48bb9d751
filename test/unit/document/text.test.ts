import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { decodeDocument } from "../../../src/document/decode.ts"
import { MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH } from "../../../src/document/text.ts"
import { baseDocument, bytesOf, issuesOf, jsonBytes } from "./fixtures.ts"

const withField = (json: string) => `${JSON.stringify(baseDocument()).slice(0, -1)},"x":${json}}`
const nested = (depth: number) => withField("[".repeat(depth - 1) + "]".repeat(depth - 1))

describe("a document as a file", () => {
  it("of 10 MiB is read like any other", () => {
    const document = baseDocument()
    document.instances[0].config.command.environment = Object.fromEntries(
      Array.from({ length: 330 }, (_, n) => [`V${n}`, "v".repeat(32_768)])
    )
    const bytes = jsonBytes(document)
    assert.isAbove(bytes.length, 10 * 1024 * 1024)
    assert.isEmpty(issuesOf(bytes))
  })
  it("of 10 MiB that is wrong in millions of places is refused", () => {
    assert.lengthOf(issuesOf(bytesOf(`[${"1,".repeat(5_000_000)}1]`)), 1)
    const wide = `{"hostId":"h","volumes":[${"1,".repeat(5_000_000)}1],"instances":[],"checkpoints":[],"exports":[]}`
    assert.lengthOf(issuesOf(bytesOf(wide)), 1000)
    const deepInside = baseDocument()
    deepInside.instances[0].config.command.args = Array.from({ length: 500_000 }, () => 1)
    assert.isNotEmpty(issuesOf(jsonBytes(deepInside)))
  })
  it(`larger than ${MAX_DOCUMENT_BYTES} bytes is refused with its size`, () => {
    const [issue] = issuesOf(new Uint8Array(MAX_DOCUMENT_BYTES + 1))
    assert.include(issue?.message, String(MAX_DOCUMENT_BYTES + 1))
  })
  it(`may nest ${MAX_DOCUMENT_DEPTH} deep in a field that is not known, and no deeper`, () => {
    assert.isEmpty(issuesOf(bytesOf(nested(MAX_DOCUMENT_DEPTH))))
    const [issue, ...more] = issuesOf(bytesOf(nested(MAX_DOCUMENT_DEPTH + 1)))
    assert.include(issue?.message, `deeper than the ${MAX_DOCUMENT_DEPTH} levels`)
    assert.isEmpty(more)
  })
  for (const [what, text] of [
    ["lists", "[".repeat(10_000) + "]".repeat(10_000)],
    ["objects", '{"a":'.repeat(10_000) + 1 + "}".repeat(10_000)],
    ["lists that are never closed", "[".repeat(10_000_000)],
    ["objects that are never closed", '{"a":'.repeat(1_000_000)]
  ] as const)
    it(`that nests thousands of ${what} is refused at the place where it is too deep`, () => {
      const [issue] = issuesOf(bytesOf(text))
      assert.include(issue?.message, "deeper")
      const step = text.startsWith("{") ? 5 : 1
      assert.strictEqual(issue?.column, MAX_DOCUMENT_DEPTH * step + 1)
    })
  it("with a key twice in one object is refused at the second, by its pointer", () => {
    const text = '{\n "hostId": "h",\n "x": [{"a" : 1, "\\u0061": 2}],\n "hostId" :"i"\n}'
    assert.deepStrictEqual(
      issuesOf(bytesOf(text)).map(({ column, line, path }) => [path, line, column]),
      [
        ["/x/0/a", 3, 18],
        ["/hostId", 4, 2]
      ]
    )
  })
  it("with one key in two objects is fine, and with colons and braces in its texts", () => {
    assert.isEmpty(issuesOf(bytesOf(withField('{"a": {"a": "}:{\\":\\\\"}, "b": ":[", "c:{" : 1}'))))
  })
  it("with a byte order mark is read without it", () => {
    assert.isEmpty(issuesOf(bytesOf(`\ufeff${JSON.stringify(baseDocument())}`)))
    const [issue] = issuesOf(bytesOf("\ufeff{]"))
    assert.strictEqual(issue?.column, 2)
  })
  it("in UTF-16 is refused as such", () => {
    const [issue] = issuesOf(
      new Uint8Array(Buffer.from(`\ufeff${JSON.stringify(baseDocument())}`, "utf16le"))
    )
    assert.strictEqual(issue?.message, "the document is UTF-16, but must be UTF-8")
  })
  it("that is not UTF-8 is refused at the first byte that is none", () => {
    const bytes = Buffer.concat([
      Buffer.from('{\n "hostId": "ü'),
      Buffer.from([0xc3, 0x28]),
      Buffer.from('"}')
    ])
    const [issue] = issuesOf(bytes)
    assert.include(issue?.message, "byte 16")
    assert.deepStrictEqual([issue?.line, issue?.column], [2, 14])
  })
  it("that ends inside a character is refused there", () => {
    const [issue] = issuesOf(Buffer.from([0x22, 0x61, 0xe2, 0x82]))
    assert.include(issue?.message, "byte 2")
  })
  it("with half of a surrogate pair is refused where it stands, in a value as in a key", () => {
    const lone = issuesOf(bytesOf(withField('["\\ud83d\\ude00", "\\uD83D", {"\\udE00": 1}]')))
    assert.deepStrictEqual(
      lone.map(({ path }) => path),
      ["/x/1", "/x/2/\ude00"]
    )
  })
  it("with surrogate pairs, escaped or not, is fine", () => {
    assert.isEmpty(issuesOf(bytesOf(withField('"\\ud83d\\ude00 😀"'))))
  })
  it("counts lengths in characters, not in their halves", () => {
    const key = (n: number) => {
      const document = baseDocument()
      document.instances[0].layers[0].objectKey = "😀".repeat(n)
      return issuesOf(jsonBytes(document))
    }
    assert.isEmpty(key(1024))
    assert.lengthOf(key(1025), 1)
  })
  it("counts columns in characters", () => {
    const issue = issuesOf(bytesOf('{"😀é": 1, "hostId": 7}')).find(({ path }) => path === "/hostId")
    assert.strictEqual(issue?.column, 21)
  })
  it("that is empty, or only white space, is refused", () => {
    for (const text of ["", " \n\t "]) {
      const [issue] = issuesOf(bytesOf(text))
      assert.include(issue?.message, "the text ends where a value belongs")
    }
  })
  it("with fields that are not known is accepted, and they are dropped", () => {
    const decoded = decodeDocument(bytesOf(withField('{"deep": [1, {"y": null}]}')))
    assert.isTrue(Result.isSuccess(decoded))
    assert.notProperty(Result.getOrThrow(decoded), "x")
  })
})
