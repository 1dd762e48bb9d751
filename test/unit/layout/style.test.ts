import { assert, describe, it } from "@effect/vitest"
import { lineAt, read, sources, walk } from "./imports.ts"

/** What `src/` does through Effect's services, so that a test can hold it still. */
const hostGlobals = new Set([
  "process",
  "Buffer",
  "fetch",
  "console",
  "performance",
  "setTimeout",
  "setInterval",
  "setImmediate",
  "queueMicrotask",
  "Promise"
])

/** Where an identifier stands for the name of a member or key, and so not for a global. */
const isMemberName = (parent: Record<string, unknown> | undefined, key: string) =>
  parent !== undefined &&
  ((key === "property" && parent.computed !== true) || (key === "key" && parent.computed !== true))

const findings = (text: string): ReadonlyArray<string> => {
  const found: Array<string> = []
  walk(text, (node, parent, key) => {
    const report = (what: string) => found.push(`${lineAt(text, node.start)}: ${what}`)
    if (node.async === true) report("an async function: use Effect.gen")
    if (node.type === "TryStatement") report("a try statement: use Effect.try")
    if (node.type === "Identifier" && hostGlobals.has(String(node.name)) && !isMemberName(parent, key)) {
      report(`the global ${node.name}`)
    }
    if (node.type === "NewExpression" && text.startsWith("new Date()", node.start))
      report("new Date(): use Clock")
    if (node.type === "CallExpression" && /^(Date\.now|Math\.random)\(/u.test(text.slice(node.start))) {
      report("Date.now or Math.random: use Clock or Random")
    }
  })
  return found
}

describe("the code of src/", () => {
  it("has no async function, no Promise, no try, no global of the host and no clock of its own", () => {
    const found = sources("src").flatMap((file) =>
      findings(read(file)).map((finding) => `${file}:${finding}`)
    )
    assert.deepStrictEqual(found, [])
  })
})

describe("the reader of style", () => {
  const forbidden = [
    "const f = async () => 1",
    "async function f() {}",
    "const o = { async f() {} }",
    "try { f() } catch {}",
    "const later = new Promise(() => {})",
    "const now = Date.now()",
    "const now = new Date()",
    "setTimeout(() => {}, 1)",
    "const home = process.env.HOME"
  ]
  for (const statement of forbidden) {
    it(`catches ${statement}`, () => {
      assert.lengthOf(findings(`const before = 1\n${statement}\n`), 1)
      assert.match(findings(`const before = 1\n${statement}\n`)[0] ?? "", /^2: /u)
    })
  }

  it("lets members and keys of the same names pass", () => {
    assert.deepStrictEqual(
      findings("const process1 = record.process\nconst o = { process: 1 }\nnew Date(0)"),
      []
    )
  })
})
