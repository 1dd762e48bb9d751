/** Compiles tests in C together with the parts of PID 1 that make no system call. */
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync } from "node:fs"
import { join } from "node:path"

const here = import.meta.dirname
const init = join(here, "../../guest/init")
const wire = join(here, "../../guest/wire")
const cache = join(here, "../../.cache/guest-tests")
const PARTS = [
  ...["wire.c", "ring.c", "replies.c"].map((name) => join(wire, name)),
  ...["session.c", "supervise.c"].map((name) => join(init, name))
]

const SANITIZED = [
  "-fsanitize=address,undefined",
  "-fno-sanitize-recover=all",
  "-fno-omit-frame-pointer",
  "-g"
]
const FLAGS = ["-D_GNU_SOURCE", "-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror"]

const sourcesIn = (folder: string) =>
  readdirSync(folder)
    .filter((name) => /\.[ch]$/u.test(name))
    .sort()
    .map((name) => join(folder, name))

/** The path of `test/guest/NAME.c`, built with address and undefined-behaviour sanitizers; once per sources. */
export const compileSanitized = (name: string): string => {
  const hash = createHash("sha256").update([...FLAGS, ...SANITIZED].join(" "))
  for (const path of [...sourcesIn(init), ...sourcesIn(wire), ...sourcesIn(here)])
    hash.update(path).update(readFileSync(path))
  const program = join(cache, `${name}-${hash.digest("hex").slice(0, 16)}`)
  if (existsSync(program)) return program
  mkdirSync(cache, { recursive: true })
  const fresh = `${program}.${process.pid}`
  const sources = [join(here, `${name}.c`), join(here, "platform.c"), ...PARTS]
  const { error, status, stderr } = spawnSync(
    "clang",
    [...FLAGS, ...SANITIZED, "-I", wire, "-o", fresh, ...sources, "-lm"],
    { encoding: "utf8" }
  )
  if (error !== undefined || status !== 0) {
    throw new Error(`clang could not build ${name}.c: ${error?.message ?? stderr}`)
  }
  renameSync(fresh, program)
  return program
}
