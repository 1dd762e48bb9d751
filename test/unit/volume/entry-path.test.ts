import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { isLitter, placeEntry, showName } from "../../../src/volume/entry-path.ts"

const part = fc.oneof(
  fc.constantFrom("..", ".", "", "a", "b", ".DS_Store", "_x", "...", "..a", "é"),
  fc.string({ minLength: 1, maxLength: 12, unit: "binary-ascii" }).filter((text) => !text.includes("/"))
)
const name = fc.array(part, { maxLength: 8 }).map((parts) => parts.join("/"))

describe("the place of an entry", () => {
  it("is never outside of the destination, whatever the name", () => {
    fc.assert(
      fc.property(name, (text) => {
        const place = placeEntry(text)
        if (place.kind !== "inside") return
        const parts = place.path === "" ? [] : place.path.split("/")
        assert.isFalse(parts.some((one) => one === "" || one === "." || one === ".."))
        assert.notInclude(place.path, "\0")
      })
    )
  })

  it("is refused whenever a part of the name is .. or the name is absolute, litter or not", () => {
    fc.assert(
      fc.property(name, (text) => {
        if (text.startsWith("/") || text.split("/").includes("..")) {
          assert.strictEqual(placeEntry(text).kind, "refused")
        }
      })
    )
  })

  it("is the same however often it is asked for", () => {
    fc.assert(
      fc.property(name, (text) => {
        const place = placeEntry(text)
        if (place.kind === "inside") assert.deepStrictEqual(placeEntry(place.path), place)
      })
    )
  })

  it("drops what stands for the directory itself", () => {
    assert.deepStrictEqual(placeEntry("./a//b/./c/"), { kind: "inside", path: "a/b/c" })
    assert.deepStrictEqual(placeEntry("./"), { kind: "inside", path: "" })
  })

  it("is refused for names and paths that Linux cannot hold", () => {
    assert.strictEqual(placeEntry("a".repeat(255)).kind, "inside")
    assert.strictEqual(placeEntry("a".repeat(256)).kind, "refused")
    assert.strictEqual(placeEntry("a/".repeat(2047)).kind, "inside")
    assert.strictEqual(placeEntry("a/".repeat(2048)).kind, "refused")
  })
})

describe("litter", () => {
  const litter = [
    ...[".DS_Store", "__MACOSX", "._a", "._", "Thumbs.db", "desktop.ini"],
    ...[".notes.txt.swp", ".a.swo", "..swp", ".#lock", ".#"]
  ]
  for (const one of litter) {
    it(`is ${one}, anywhere in a path`, () => {
      assert.isTrue(isLitter(one))
      assert.strictEqual(placeEntry(`a/${one}`).kind, "litter")
      assert.strictEqual(placeEntry(`${one}/a`).kind, "litter")
    })
  }
  const kept = [
    ...["notes.txt~", ".ds_store", "thumbs.db", "Desktop.ini", "MACOSX", "_.a", ".swp", ".a.sw", "a.swp"],
    ...["#a#", ".env", ".a.swap", ".git", "#.#", ".Trashes", ".directory"]
  ]
  for (const one of kept) it(`is not ${one}`, () => assert.isFalse(isLitter(one)))
})

describe("a name in a sentence", () => {
  it("is printable and short, whatever the bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => {
        const shown = showName(Buffer.from(bytes).toString("latin1"))
        assert.notMatch(shown, /[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/u)
        assert.isAtMost(shown.length, 700)
      })
    )
  })

  it("is UTF-8 that is read as such", () => {
    assert.strictEqual(showName(Buffer.from("naïve").toString("latin1")), '"naïve"')
  })
})
