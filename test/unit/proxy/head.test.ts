import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { COMPLETE, HeadReader, INCOMPLETE } from "../../../layers/proxy/http/head.ts"
import { MAX_FIELDS, MAX_HEAD_BYTES } from "../../../layers/proxy/http/limits.ts"

interface Reading {
  readonly result: number
  readonly reason: string
  readonly consumed: number
  readonly start: ReadonlyArray<number>
  readonly fields: ReadonlyArray<readonly [name: string, value: string, id: number]>
}

/** Reads as a connection does: all bytes that came so far, from the head's first one, piece by piece. */
const readInPieces = (kind: "request" | "answer", bytes: Buffer, cuts: ReadonlyArray<number>): Reading => {
  const reader = new HeadReader(kind)
  let result = INCOMPLETE
  for (const end of [...cuts.filter((cut) => cut < bytes.length).sort((a, b) => a - b), bytes.length]) {
    // another offset and other bytes around, as in a buffer that is shared
    const base = end % 7
    const shared = Buffer.concat([Buffer.alloc(base, "#"), bytes.subarray(0, end), Buffer.from("###")])
    result = reader.read(shared, base, base + end)
    if (result !== INCOMPLETE) break
  }
  const fields = Array.from({ length: result === COMPLETE ? reader.fieldCount : 0 }, (_, field) => {
    const name = bytes.toString("latin1", reader.nameStart(field), reader.nameEnd(field))
    return [
      name,
      bytes.toString("latin1", reader.valueStart(field), reader.valueEnd(field)),
      reader.id(field)
    ] as const
  })
  const start =
    result !== COMPLETE
      ? []
      : kind === "request"
        ? [reader.start, reader.methodEnd, reader.targetStart, reader.targetEnd, reader.minorVersion]
        : [reader.status, reader.minorVersion, reader.fieldsStart]
  return { result, reason: reader.reason, consumed: reader.length, start, fields }
}

const read = (kind: "request" | "answer", text: string) => readInPieces(kind, Buffer.from(text, "latin1"), [])

const token = fc.string({
  unit: fc.constantFrom(..."abcxyzABCXYZ019!#$%&'*+-.^_`|~"),
  minLength: 1,
  maxLength: 20
})
const value = fc
  .string({ unit: fc.constantFrom(...'abcXYZ019 \t,;:="()<>\u00e9\u00ff'), maxLength: 30 })
  .map((text) => text.replace(/^[ \t]+|[ \t]+$/gu, ""))
const padding = fc.constantFrom("", " ", "\t", "  \t ")
const target = fc
  .string({ unit: fc.constantFrom(..."abc/?#=&%.-\u00e9"), maxLength: 30 })
  .map((text) => `/${text}`)
const fields = fc.array(fc.record({ name: token, value, before: padding, after: padding }), { maxLength: 12 })
const lines = (list: ReadonlyArray<{ name: string; value: string; before: string; after: string }>) =>
  list.map(({ name, value, before, after }) => `${name}:${before}${value}${after}\r\n`).join("")
const cuts = fc.array(fc.nat(400), { maxLength: 8 })

/** Bytes that are nearly a head: whatever a reader could stumble over. */
const nearlyHead = fc
  .array(
    fc.constantFrom(
      "GET",
      " ",
      "/",
      "/a",
      "HTTP/1.1",
      "HTTP/1.0",
      "HTTP/2.0",
      "\r\n",
      "\r",
      "\n",
      "\0",
      "Host",
      ":",
      "a",
      "\t",
      "Content-Length",
      "5",
      "200",
      "OK",
      "\r\n\r\n",
      "\u007f",
      "\u00ff"
    ),
    { maxLength: 20 }
  )
  .map((pieces) => pieces.join(""))

describe("the reader of heads", () => {
  it("gives back what was written, request line and fields alike", () => {
    fc.assert(
      fc.property(token, target, fc.constantFrom(0, 1), fields, (method, path, minor, list) => {
        const text = `${method} ${path} HTTP/1.${minor}\r\n${lines(list)}\r\n`
        const reading = read("request", `${text}body`)
        assert.strictEqual(reading.result, COMPLETE)
        assert.strictEqual(reading.consumed, text.length)
        const [start, methodEnd, targetStart, targetEnd, minorVersion] = reading.start
        assert.strictEqual(text.slice(start, methodEnd), method)
        assert.strictEqual(text.slice(targetStart, targetEnd), path)
        assert.strictEqual(minorVersion, minor)
        assert.deepStrictEqual(
          reading.fields.map(([name, value]) => [name, value]),
          list.map(({ name, value }) => [name, value])
        )
      })
    )
  })

  it("gives back what was written of an answer", () => {
    fc.assert(
      fc.property(fc.integer({ min: 100, max: 999 }), value, fields, (status, reason, list) => {
        const text = `HTTP/1.1 ${status} ${reason}\r\n${lines(list)}\r\n`
        const reading = read("answer", text)
        assert.strictEqual(reading.result, COMPLETE)
        assert.deepStrictEqual(reading.start, [status, 1, text.indexOf("\r\n") + 2])
        assert.lengthOf(reading.fields, list.length)
      })
    )
  })

  it("reads the same whatever pieces the bytes come in", () => {
    const whole = fc
      .tuple(token, target, fields)
      .map(([method, path, list]) => `${method} ${path} HTTP/1.1\r\n${lines(list)}\r\nrest`)
    fc.assert(
      fc.property(
        fc.oneof(whole, nearlyHead),
        cuts,
        fc.constantFrom("request", "answer"),
        (text, at, kind) => {
          const bytes = Buffer.from(text, "latin1")
          const once = readInPieces(kind, bytes, [])
          assert.deepStrictEqual(readInPieces(kind, bytes, at), once)
          const byteByByte = Array.from(bytes, (_, index) => index)
          assert.deepStrictEqual(readInPieces(kind, bytes, byteByByte), once)
        }
      ),
      { numRuns: 500 }
    )
  })

  it("takes no head in which a line does not end in CR LF", () => {
    fc.assert(
      fc.property(
        fields,
        fc.constantFrom("\n", "\r", "\r\r\n", "\n\r\n", "\0\r\n"),
        fc.nat(),
        (list, end, pick) => {
          const all = ["GET / HTTP/1.1", ...list.map(({ name, value }) => `${name}: ${value}`), ""]
          const broken = pick % all.length
          const text = all.map((line, index) => line + (index === broken ? end : "\r\n")).join("")
          assert.notStrictEqual(read("request", `${text}\r\n`).result, COMPLETE)
        }
      )
    )
  })

  it("knows the fields that matter in any case of their letters", () => {
    const names = ["Host", "content-LENGTH", "Transfer-Encoding", "CONNECTION", "te", "X-Forwarded-For"]
    const reading = read(
      "request",
      `GET / HTTP/1.1\r\n${names.map((name) => `${name}: x\r\n`).join("")}Hosts: x\r\n\r\n`
    )
    assert.deepStrictEqual(
      reading.fields.map(([, , id]) => id),
      [1, 2, 3, 4, 10, 7, 0]
    )
  })

  it("skips empty lines before a request, and none before an answer", () => {
    assert.strictEqual(read("request", "\r\n\r\nGET / HTTP/1.1\r\n\r\n").result, COMPLETE)
    assert.strictEqual(read("answer", "\r\nHTTP/1.1 200 OK\r\n\r\n").result, 400)
  })

  it("refuses a head that is longer than the limit as soon as the limit is reached", () => {
    const field = `a: ${"x".repeat(MAX_HEAD_BYTES)}`
    assert.strictEqual(read("request", `GET / HTTP/1.1\r\n${field}`).result, 431)
    const exact = "GET / HTTP/1.1\r\na: "
    const filling = "x".repeat(MAX_HEAD_BYTES - exact.length - 4)
    assert.strictEqual(read("request", `${exact}${filling}\r\n\r\n`).result, COMPLETE)
    assert.strictEqual(read("request", `${exact}${filling}x\r\n\r\n`).result, 431)
  })

  it("refuses a flood of fields", () => {
    const flood = (count: number) => read("request", `GET / HTTP/1.1\r\n${"a:\r\n".repeat(count)}\r\n`).result
    assert.strictEqual(flood(MAX_FIELDS), COMPLETE)
    assert.strictEqual(flood(MAX_FIELDS + 1), 431)
  })

  const refused: ReadonlyArray<readonly [what: string, head: string, status: number]> = [
    ["HTTP/0.9", "GET /\r\n", 400],
    ["HTTP/2.0", "PRI * HTTP/2.0\r\n", 505],
    ["HTTP/1.2", "GET / HTTP/1.2\r\n", 505],
    ["a version in small letters", "GET / http/1.1\r\n", 400],
    ["two spaces", "GET  / HTTP/1.1\r\n", 400],
    ["a space after the version", "GET / HTTP/1.1 \r\n", 400],
    ["a tab in the request line", "GET\t/ HTTP/1.1\r\n", 400],
    ["a space in the target", "GET /a b HTTP/1.1\r\n", 400],
    ["a NUL in the target", "GET /\0 HTTP/1.1\r\n", 400],
    ["DEL in the target", "GET /\u007f HTTP/1.1\r\n", 400],
    ["a method with a control character", "G\u0001T / HTTP/1.1\r\n", 400],
    ["a request that begins with a space", " GET / HTTP/1.1\r\n", 400],
    ["a space before the colon", "GET / HTTP/1.1\r\nHost : a\r\n", 400],
    ["a field without a name", "GET / HTTP/1.1\r\n: a\r\n", 400],
    ["a line without a colon", "GET / HTTP/1.1\r\nHost\r\n", 400],
    ["a folded field", "GET / HTTP/1.1\r\nA: b\r\n c\r\n", 400],
    ["a first field that begins with a space", "GET / HTTP/1.1\r\n Host: a\r\n", 400],
    ["a NUL in a value", "GET / HTTP/1.1\r\nA: b\0\r\n", 400],
    ["a vertical tab in a value", "GET / HTTP/1.1\r\nA:\u000bb\r\n", 400],
    ["a bare CR in a value", "GET / HTTP/1.1\r\nA: b\rc\r\n", 400],
    ["a TLS hello", "\u0016\u0003\u0001\u0002", 400]
  ]
  for (const [what, head, status] of refused) {
    it(`refuses ${what}`, () => {
      assert.strictEqual(read("request", head).result, status)
      assert.notStrictEqual(read("request", head).reason, "")
    })
  }
})
