import { existsSync, readdirSync } from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { read, root } from "./imports.ts"

const pages = ["README.md", ...readdirSync(join(root, "docs")).map((name) => `docs/${name}`)].filter(
  (path) => path.endsWith(".md") && existsSync(join(root, path))
)

const scripts: Record<string, string> = JSON.parse(read("package.json")).scripts

describe("the documents", () => {
  it("link only to files that are there", () => {
    const broken = pages.flatMap((page) =>
      [...read(page).matchAll(/\]\((?!https?:|#)([^)#\s]+)/gu)]
        .map(([, link]) => link ?? "")
        .filter((link) => !existsSync(join(root, dirname(page), link)))
        .map((link) => `${page} links to ${link}`)
    )
    assert.deepStrictEqual(broken, [])
  })

  it("name only commands that package.json has", () => {
    const unknown = pages.flatMap((page) =>
      [...read(page).matchAll(/\bnpm run (?:--silent )?([a-z][\w:-]*)/gu)]
        .map(([, name]) => name ?? "")
        .filter((name) => !(name in scripts))
        .map((name) => `${page} says npm run ${name}`)
    )
    assert.deepStrictEqual(unknown, [])
  })

  it("say why each dependency is there", () => {
    const { dependencies, devDependencies } = JSON.parse(read("package.json"))
    const page = read("docs/dependencies.md")
    const unsaid = Object.keys({ ...dependencies, ...devDependencies }).filter(
      (name) => !page.includes(`\`${name}\``)
    )
    assert.deepStrictEqual(unsaid, [])
  })
})
