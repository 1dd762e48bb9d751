import { readdirSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"

describe("nibrunner/testing", () => {
  it("gives everything that lies in layers/testing", async () => {
    const published = await import("nibrunner/testing")
    const folder = join(import.meta.dirname, "../../../layers/testing")
    for (const file of readdirSync(folder).filter((name) => name !== "index.ts")) {
      const module: object = await import(join(folder, file))
      assert.deepStrictEqual(
        Object.keys(module).filter((name) => !(name in published)),
        [],
        file
      )
    }
  })
})
