/**
 * Makes the files of `dist/`, as rolldown.config.ts says. Each is replaced as a whole, and its time is that of the
 * build's start: a source that changes while the build runs is newer than the bundle.
 */
import { spawnSync } from "node:child_process"
import { closeSync, fsyncSync, mkdirSync, openSync, renameSync, utimesSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { rolldown } from "rolldown"
import config from "../rolldown.config.ts"

const root = join(import.meta.dirname, "..")
const started = new Date()

/** Replaces the file as a whole. */
const write = (target: string, code: string) => {
  const half = `${target}.${process.pid}`
  mkdirSync(dirname(target), { recursive: true })
  const file = openSync(half, "w")
  writeFileSync(file, code)
  fsyncSync(file)
  closeSync(file)
  utimesSync(half, started, started)
  renameSync(half, target)
}

for (const options of config) {
  const build = await rolldown({ ...options, cwd: root })
  const { output } = await build.generate(options.output)
  await build.close()
  const folder = "dir" in options.output ? options.output.dir : dirname(options.output.file)
  const chunks = output.filter((part) => part.type === "chunk")
  // What is started comes last: it is only there with what it loads.
  for (const { fileName, code } of chunks.sort((a, b) => Number(a.isEntry) - Number(b.isEntry)))
    write(join(root, folder, fileName), code)
}

// Node keeps what it has made of the text for the calls to come: all of what a check takes, so that none is left out
// whatever is called first. Without it the calls are slower, and nothing else.
const samples = ["deploy/config.example.toml", "examples/hello/desired.json"].map((file) => join(root, file))
spawnSync(join(root, "bin/nibrunnerd"), ["check", ...samples], { stdio: "ignore" })
