/**
 * The least that a changed document costs somebody: a script that reads it, hashes it, parses it, and writes a report
 * of the same size. Prints its CPU time in ms: that of the work alone, and with Node's own start.
 *
 *     node baseline.mjs DOCUMENT REPORT REPORT_BYTES
 */
import { createHash } from "node:crypto"
import { readFileSync, renameSync, writeFileSync } from "node:fs"

const [document = "", report = "", reportBytes = "0"] = process.argv.slice(2)
const text = "x".repeat(Number(reportBytes))
const before = process.cpuUsage()
const bytes = readFileSync(document)
const digest = createHash("sha256").update(bytes).digest("hex")
const { instances } = JSON.parse(bytes.toString("utf8"))
writeFileSync(`${report}.new`, text)
renameSync(`${report}.new`, report)
const work = process.cpuUsage(before)
const all = process.cpuUsage()
const ms = (/** @type {NodeJS.CpuUsage} */ { user, system }) => (user + system) / 1000
console.log(JSON.stringify({ workMs: ms(work), allMs: ms(all), digest, apps: instances.length }))
