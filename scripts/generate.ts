/**
 * Writes the files that are made from the code: JSON Schemas, the example configuration, the list of metrics.
 *
 * With `--check` it writes nothing, names the files that are behind and exits with 1.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import { fileURLToPath } from "node:url"
import { exampleConfig } from "../src/config/example.ts"
import { configJsonSchema } from "../src/config/json-schema.ts"
import { desiredJsonSchema } from "../src/document/json-schema.ts"
import { metricsDocument } from "../src/metrics/document.ts"
import { reportedJsonSchema } from "../src/report/json-schema.ts"

const json = (value: unknown) => `${JSON.stringify(value, null, 2)}\n`

/** Each generated file, by its path in the checkout, and what belongs into it. */
export const generatedFiles: ReadonlyArray<readonly [path: string, contents: () => string]> = [
  ["deploy/schema/desired.schema.json", () => json(desiredJsonSchema())],
  ["deploy/schema/reported.schema.json", () => json(reportedJsonSchema())],
  ["deploy/schema/config.schema.json", () => json(configJsonSchema())],
  ["deploy/config.example.toml", exampleConfig],
  ["docs/metrics.md", metricsDocument]
]

const pathOf = (path: string) => fileURLToPath(new URL(`../${path}`, import.meta.url))

const isBehind = (path: string, contents: string): boolean => {
  try {
    return readFileSync(pathOf(path), "utf8") !== contents
  } catch {
    return true
  }
}

/** The paths of the generated files that are not what the code makes. */
export const filesBehind = (): ReadonlyArray<string> =>
  generatedFiles.flatMap(([path, contents]) => (isBehind(path, contents()) ? [path] : []))

const generate = () => {
  const behind = filesBehind()
  if (process.argv.includes("--check")) {
    for (const path of behind) console.error(`${path} is behind: run "node scripts/generate.ts"`)
    process.exitCode = behind.length === 0 ? 0 : 1
    return
  }
  for (const [path, contents] of generatedFiles) {
    if (!behind.includes(path)) continue
    mkdirSync(dirname(pathOf(path)), { recursive: true })
    writeFileSync(pathOf(path), contents())
    console.log(`wrote ${path}`)
  }
}

if (import.meta.main) generate()
