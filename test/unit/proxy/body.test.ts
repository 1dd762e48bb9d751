import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { BodyReader, type Framing, MALFORMED } from "../../../layers/proxy/http/body.ts"

interface Reading {
  readonly content: string
  readonly done: boolean
  readonly malformed: boolean
  /** Bytes behind the body. */
  readonly surplus: string
  readonly trailers: string
}

const readInPieces = (
  framing: Framing,
  length: number,
  text: string,
  cuts: ReadonlyArray<number>
): Reading => {
  const body = new BodyReader()
  body.begin(framing, length)
  const ends = [...cuts.filter((cut) => cut < text.length).sort((a, b) => a - b), text.length]
  let content = ""
  let from = 0
  for (const end of ends) {
    const bytes = Buffer.from(`##${text.slice(from, end)}##`, "latin1")
    let at = 2
    while (at < bytes.length - 2 && !body.done) {
      at = body.read(bytes, at, bytes.length - 2)
      if (at === MALFORMED) return { content, done: false, malformed: true, surplus: "", trailers: "" }
      content += bytes.toString("latin1", body.contentStart, body.contentEnd)
    }
    if (body.done) {
      const consumed = from + at - 2
      return { content, done: true, malformed: false, surplus: text.slice(consumed), trailers: body.trailers }
    }
    from = end
  }
  return { content, done: body.done, malformed: false, surplus: "", trailers: "" }
}

const chunk = (content: string, extension = "") =>
  `${content.length.toString(16)}${extension}\r\n${content}\r\n`
const contents = fc.array(
  fc.string({ unit: fc.constantFrom(..."ab\r\n0;\0"), minLength: 1, maxLength: 40 }),
  { maxLength: 6 }
)
const extension = fc.constantFrom("", ";a", ";a=b", ';a="b c"')
const trailers = fc.constantFrom("", "X-Sum: 1\r\n", "a: b\r\nc: d\r\n")
const cuts = fc.array(fc.nat(300), { maxLength: 10 })

describe("the reader of bodies", () => {
  it("gives back the content of chunks, whatever pieces the bytes come in", () => {
    fc.assert(
      fc.property(
        contents,
        extension,
        trailers,
        fc.constantFrom("", "GET / HTTP/1.1"),
        cuts,
        (list, ext, tail, surplus, at) => {
          const text = `${list.map((content) => chunk(content, ext)).join("")}0${ext}\r\n${tail}\r\n${surplus}`
          const expected = { content: list.join(""), done: true, malformed: false, surplus, trailers: tail }
          assert.deepStrictEqual(readInPieces("chunked", 0, text, at), expected)
          assert.deepStrictEqual(
            readInPieces(
              "chunked",
              0,
              text,
              Array.from(text, (_, index) => index)
            ),
            expected
          )
        }
      )
    )
  })

  it("reads any bytes the same in one piece and in many", () => {
    const soup = fc
      .array(
        fc.constantFrom(
          "0",
          "1",
          "a",
          "5",
          "\r\n",
          "\r",
          "\n",
          ";x",
          " ",
          "\r\n\r\n",
          "ab",
          "A: b\r\n",
          "\0"
        ),
        { maxLength: 16 }
      )
      .map((pieces) => pieces.join(""))
    fc.assert(
      fc.property(soup, cuts, (text, at) => {
        const once = readInPieces("chunked", 0, text, [])
        const pieces = readInPieces("chunked", 0, text, at)
        // where the bytes break the rules, the content before may have come out already
        assert.strictEqual(pieces.malformed, once.malformed)
        assert.deepStrictEqual(pieces, once)
      }),
      { numRuns: 500 }
    )
  })

  it("ends a body of known length at its last byte", () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(..."ab\r\n"), minLength: 1 }), cuts, (content, at) => {
        const reading = readInPieces("length", content.length, `${content}next`, at)
        assert.deepStrictEqual(reading, {
          content,
          done: true,
          malformed: false,
          surplus: "next",
          trailers: ""
        })
      })
    )
  })

  it("never ends a body that only the end of its connection ends", () => {
    assert.isFalse(readInPieces("until-close", 0, "0\r\n\r\n", []).done)
  })

  const malformed: ReadonlyArray<readonly [what: string, text: string]> = [
    ["an empty size", "\r\n"],
    ["a size in hexadecimal notation", "0x5\r\nhello\r\n"],
    ["a negative size", "-5\r\nhello\r\n"],
    ["a size with a plus", "+5\r\nhello\r\n"],
    ["a space before the size", " 5\r\nhello\r\n"],
    ["a space after the size", "5 \r\nhello\r\n"],
    ["a size that does not fit", "fffffffffffff\r\n"],
    ["a size that ends in LF alone", "5\nhello\r\n"],
    ["a size that ends in CR alone", "5\rhello\r\n"],
    ["more content than the size says", "5\r\nhello!\r\n"],
    ["content that ends in LF alone", "5\r\nhello\n"],
    ["an extension with a bare LF", "5;a\nb\r\nhello\r\n"],
    ["an extension with a bare CR", "5;a\rb\r\nhello\r\n"],
    ["an extension with a NUL", "5;\0\r\nhello\r\n"],
    ["a very long extension", `5;${"a".repeat(300)}\r\nhello\r\n`],
    ["very many extensions", `1;${"a".repeat(200)}\r\nx\r\n`.repeat(100)],
    ["a trailer with a space before the colon", "0\r\nA : b\r\n\r\n"],
    ["a folded trailer", "0\r\nA: b\r\n c\r\n\r\n"],
    ["a very long trailer", `0\r\nA: ${"b".repeat(9000)}\r\n\r\n`]
  ]
  for (const [what, text] of malformed) {
    it(`refuses ${what}`, () => {
      assert.isTrue(readInPieces("chunked", 0, text, []).malformed)
    })
  }

  it("passes on no trailer that would change how a message is framed, routed or read", () => {
    const fields = [
      "Content-Length: 3",
      "Transfer-Encoding: chunked",
      "Host: a",
      "Connection: x",
      "Authorization: b",
      "X-Forwarded-For: c"
    ]
    const reading = readInPieces("chunked", 0, `0\r\n${fields.join("\r\n")}\r\nX-Fine: d\r\n\r\n`, [])
    assert.strictEqual(reading.trailers, "X-Fine: d\r\n")
  })
})
