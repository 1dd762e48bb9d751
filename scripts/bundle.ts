/**
 * Makes `dist/nibrunnerd.mjs`, as rolldown.config.ts says. The file is replaced as a whole, and its time is that
 * of the build's start: a source that changes while the build runs is newer than the bundle.
 */
import { closeSync, fsyncSync, mkdirSync, openSync, renameSync, utimesSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { rolldown } from "rolldown"
import config from "../rolldown.config.ts"

const root = join(import.meta.dirname, "..")
const started = new Date()

const build = await rolldown({ ...config, cwd: root })
const { output } = await build.generate(config.output)
await build.close()
const [chunk] = output
if (output.length !== 1) {
  throw new Error(`the bundle must be one file, but is ${output.map((part) => part.fileName).join(", ")}`)
}

const target = join(root, config.output.file)
const half = `${target}.${process.pid}`
mkdirSync(dirname(target), { recursive: true })
const file = openSync(half, "w")
writeFileSync(file, chunk.code)
fsyncSync(file)
closeSync(file)
utimesSync(half, started, started)
renameSync(half, target)
