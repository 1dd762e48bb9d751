import { readdirSync, readFileSync, statSync } from "node:fs"
import { join, relative } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { root } from "./imports.ts"

const generated = new Set(["node_modules", "dist", ".git", ".nibrunner", ".cache", "package-lock.json"])

/** Every text file of the project, as paths from its root. */
const texts = (folder = root): ReadonlyArray<string> =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => !generated.has(entry.name))
    .flatMap((entry) => {
      const path = join(folder, entry.name)
      return entry.isDirectory() ? texts(path) : entry.isFile() ? [path] : []
    })
    .filter((path) => statSync(path).size < 1_000_000 && !readFileSync(path).includes(0))
    .map((path) => relative(root, join(root, relative(root, path))))

const isTest = (path: string) => path.startsWith("test/")

/** What no file of the project may say, in pieces so that this one does not say it either. */
const forbidden: ReadonlyArray<readonly [what: string, pattern: RegExp, except?: (path: string) => boolean]> =
  [
    [
      "a path of the machine that it was written on",
      /\/(work|home|root)\/(main|shared|\.library)\b|\/tmp\/w\b/u
    ],
    ["a folder outside the project", /(?<![\w.])\.\.\/shared\b/u],
    ["a registry's host", new RegExp(`registry\\.${"npmjs"}|deb\\.${"debian"}\\.org`, "u")],
    ["an issue's number", /\bissue #?\d/iu],
    ["an unfinished thing", new RegExp(`\\b(${["TO", "DO"].join("")}|${["FIX", "ME"].join("")})\\b`, "u")],
    [
      "a test that is left out",
      /\b(it|describe|test)(\.effect|\.live)?\.(only|todo)\(/u,
      (path) => !isTest(path)
    ]
  ]

const findings = (path: string, text: string): ReadonlyArray<string> =>
  text
    .split("\n")
    .flatMap((line, index) =>
      forbidden
        .filter(([, pattern, except]) => !except?.(path) && pattern.test(line))
        .map(([what]) => `${path}:${index + 1} names ${what}: ${line.trim().slice(0, 80)}`)
    )

describe("the text of the project", () => {
  it("speaks of the project only", () => {
    const files = texts()
    assert.isAbove(files.length, 30)
    assert.deepStrictEqual(
      files.flatMap((path) => findings(path, readFileSync(join(root, path), "utf8"))),
      []
    )
  })

  it("is caught when it does not", () => {
    const planted = [
      ["", "work", "main", "src"].join("/"),
      ["..", "shared", "design.md"].join("/"),
      ["see issue", "12"].join(" "),
      ["// TO", "DO: later"].join("")
    ]
    for (const line of planted) assert.lengthOf(findings("src/planted.ts", `fine\n${line}\n`), 1, line)
    assert.lengthOf(findings("test/planted.test.ts", `it.${"only"}("x", () => {})`), 1)
  })
})
