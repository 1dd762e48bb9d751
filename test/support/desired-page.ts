/** The examples of docs/desired.md. */
import { readFileSync } from "node:fs"
import { join } from "node:path"

export const desiredPage = readFileSync(join(import.meta.dirname, "../../docs/desired.md"), "utf8")

/** Its JSON, block by block. */
export const pageExamples = (): ReadonlyArray<Record<string, unknown>> =>
  [...desiredPage.matchAll(/^```json\n(.*?)^```$/gmsu)].map(([, text]) => JSON.parse(text ?? ""))
