import { execFileSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { filesBehind, generatedFiles } from "../../../scripts/generate.ts"

describe("the generated files", () => {
  it("are what the code makes: run `node scripts/generate.ts` when they are not", () => {
    assert.deepStrictEqual([...filesBehind()], [])
  })
  it("are checked by the command too", () => {
    const script = fileURLToPath(new URL("../../../scripts/generate.ts", import.meta.url))
    assert.doesNotThrow(() => execFileSync(process.execPath, [script, "--check"]))
  })
  it("are the schemas of all three files and the example", () => {
    assert.includeMembers(
      generatedFiles.map(([path]) => path),
      [
        "deploy/schema/desired.schema.json",
        "deploy/schema/reported.schema.json",
        "deploy/schema/config.schema.json",
        "deploy/config.example.toml"
      ]
    )
  })
})
