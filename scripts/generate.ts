/**
 * Writes the files that are made from the code: JSON Schemas, the example configuration, example units, the list of metrics.
 *
 * With `--check` it writes nothing, names the files that are behind and exits with 1.
 */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import { fileURLToPath } from "node:url"
import { Result } from "effect"
import { decodeConfig } from "../src/config/decode.ts"
import { exampleConfig } from "../src/config/example.ts"
import { configJsonSchema } from "../src/config/json-schema.ts"
import { desiredJsonSchema } from "../src/document/json-schema.ts"
import { exampleUnits } from "../src/install/layout.ts"
import { metricsDocument } from "../src/metrics/document.ts"
import { reportedJsonSchema } from "../src/report/json-schema.ts"

const json = (value: unknown) => `${JSON.stringify(value, null, 2)}\n`

const unitNames = ["nibrunnerd.service", "nibrunner-zerofs.service", "mnt-zerofs.mount"] as const

/** A unit of the host that the example configuration describes. */
const unitText = (name: string): string => {
  const config = Result.getOrThrow(decodeConfig(exampleConfig(), "deploy/config.example.toml"))
  const unit = exampleUnits(config).find(({ path }) => path.endsWith(`/${name}`))
  if (unit === undefined) throw new Error(`the example configuration asks for no unit ${name}`)
  return unit.contents
}

/** Each generated file, by its path in the checkout, and what belongs into it. */
export const generatedFiles: ReadonlyArray<readonly [path: string, contents: () => string]> = [
  ["deploy/schema/desired.schema.json", () => json(desiredJsonSchema())],
  ["deploy/schema/reported.schema.json", () => json(reportedJsonSchema())],
  ["deploy/schema/config.schema.json", () => json(configJsonSchema())],
  ["deploy/config.example.toml", exampleConfig],
  ["docs/metrics.md", metricsDocument],
  ...unitNames.map((name) => [`deploy/systemd/${name}`, () => unitText(name)] as const)
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
