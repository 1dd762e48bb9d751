// @ts-check
/**
 * Prints "N passed, N failed" from vitest's JSON reports, added up; what was skipped and which files could not be run go to
 * stderr. A file that could not be run counts as one failure, since none of its tests did. Exit code 1 when
 * anything failed or nothing passed. Runs on Node 18.
 *
 *     node scripts/counts.mjs REPORT…
 */
import { readFileSync } from "node:fs"

const files = process.argv.slice(2)
if (files.length === 0) throw new Error("usage: node scripts/counts.mjs REPORT…")

/** @typedef {{ name: string, status: string, message: string, assertionResults: Array<{ status: string }> }} FileResult */
/** @type {Array<FileResult>} */
const testResults = files.flatMap((file) => JSON.parse(readFileSync(file, "utf8")).testResults)

const statuses = testResults.flatMap((result) => result.assertionResults.map((test) => test.status))
/** @param {string} status */
const count = (status) => statuses.filter((s) => s === status).length
const broken = testResults.filter(
  (result) => result.status === "failed" && !result.assertionResults.some((test) => test.status === "failed")
)

for (const { name, message } of broken) console.error(`could not be run: ${name}: ${message}`)
const passed = count("passed")
const failed = count("failed") + broken.length
const others = statuses.length - passed - count("failed")
if (others > 0) console.error(`${others} skipped`)
console.log(`${passed} passed, ${failed} failed`)
process.exitCode = failed > 0 || passed === 0 ? 1 : 0
