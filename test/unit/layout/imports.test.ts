import { existsSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { importsOf, read, root, sources, target } from "./imports.ts"

/** `src/` decides and does no I/O: the packages that help it to decide. */
const packagesOfDecisions = [/^package effect(\/.*)?$/u, /^package (smol-toml|toml-eslint-parser)$/u]

const isTesting = (path: string) => path.startsWith("layers/testing/")

/** A rule's word on one import, given where it stands and where it leads: the reason against it, if any. */
type Rule = (importer: string, to: string) => string | undefined

const decidesOnly: Rule = (importer, to) => {
  if (!importer.startsWith("src/")) return
  if (to.startsWith("layers/")) return "src/ must not know a layer"
  if (to.startsWith("node:")) return "src/ does no I/O"
  if (to.startsWith("package ")) {
    return packagesOfDecisions.some((allowed) => allowed.test(to))
      ? undefined
      : "src/ uses no package that does I/O"
  }
  return to.startsWith("src/") ? undefined : "src/ stands alone"
}

const testingStaysInTests: Rule = (importer, to) =>
  isTesting(to) && !isTesting(importer) && !importer.startsWith("bench/")
    ? "layers/testing is for tests, not for what runs"
    : undefined

const layersKnowNoProgram: Rule = (importer, to) =>
  importer.startsWith("layers/") && /^(bin|test|bench|scripts)\//u.test(to)
    ? "layers/ implement services and know nothing above them"
    : undefined

const violations = (rule: Rule, files: ReadonlyArray<string>, text: (file: string) => string = read) =>
  files.flatMap((file) =>
    importsOf(text(file)).flatMap(({ specifier, line }) => {
      const reason = rule(file, target(file, specifier))
      return reason === undefined ? [] : [`${file}:${line} imports ${specifier}: ${reason}`]
    })
  )

const live = ["bin", "src", "layers", "guest", "scripts", "bench"]
  .filter((folder) => existsSync(join(root, folder)))
  .flatMap(sources)

describe("the imports of the project", () => {
  it("src/ reaches neither Node, nor a layer, nor a package that does I/O", () => {
    const files = sources("src")
    assert.isAbove(files.length, 10)
    assert.deepStrictEqual(violations(decidesOnly, files), [])
  })

  it("nothing that runs uses the in-memory layers", () => {
    assert.deepStrictEqual(violations(testingStaysInTests, live), [])
  })

  it("a layer knows no program, test or bench", () => {
    assert.deepStrictEqual(violations(layersKnowNoProgram, live), [])
  })
})

describe("the reader of imports", () => {
  const planted = (statement: string) =>
    violations(decidesOnly, ["src/reconcile/planted.ts"], () => `const before = 1\n${statement}\n`)

  const forbidden = {
    "an import": 'import { readFileSync } from "node:fs"',
    "an import without the prefix": 'import fs from "fs"',
    "an import for its effect": 'import "node:fs"',
    "an import of types": 'import type { Stats } from "node:fs"',
    "a type named in place": 'let stats: import("node:fs").Stats',
    "an export of another module's names": 'export { readFileSync } from "node:fs"',
    "an export of a whole module": 'export * from "node:fs"',
    "an import at run time": 'const load = () => import("node:fs")',
    require: 'const fs = require("node:fs")',
    "Node's own loader": 'const fs = process.getBuiltinModule("node:fs")',
    "a layer": 'import { layer } from "../../layers/proxy/http.ts"',
    "a package that does I/O": 'import * as FileSystem from "@effect/platform-node/NodeFileSystem"'
  }

  for (const [name, statement] of Object.entries(forbidden)) {
    it(`catches ${name}, with its line`, () => {
      const found = planted(statement)
      assert.lengthOf(found, 1)
      assert.match(found[0] ?? "", /^src\/reconcile\/planted\.ts:2 imports /u)
    })
  }

  it("lets the language of the project and its own files pass", () => {
    assert.deepStrictEqual(
      planted(
        'import { Effect } from "effect"\nimport { HttpClient } from "effect/http"\nimport "./plan.ts"'
      ),
      []
    )
  })

  it("catches an in-memory layer in live code, not within the in-memory layers", () => {
    const text = () => 'import { layer } from "../testing/Proxy.ts"'
    assert.lengthOf(violations(testingStaysInTests, ["layers/proxy/http.ts"], text), 1)
    assert.lengthOf(violations(testingStaysInTests, ["layers/testing/index.ts"], text), 0)
  })
})
