/** Builds the test program: static, so that it runs on any base. */
import { execFile, execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, renameSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"

const source = join(import.meta.dirname, "tenant.c")
const folder = join(import.meta.dirname, "../../.cache/tenant")
const flags = ["-static", "-Os", "-Wall", "-Wextra", "-Werror", "-pthread"]

const compile = (output: string) =>
  Effect.callback<void, Error>((resume) => {
    execFile("musl-gcc", [...flags, "-o", output, source], (error, _, stderr) =>
      resume(
        error === null ? Effect.void : Effect.fail(new Error(`the test program cannot be built: ${stderr}`))
      )
    )
  })

/** The path of the program; built once per source. Needs Debian's musl-tools. */
export const buildTenant: Effect.Effect<string, Error> = Effect.gen(function* () {
  const key = createHash("sha256")
    .update(readFileSync(source))
    .update(flags.join(" "))
    .digest("hex")
    .slice(0, 16)
  const program = join(folder, key)
  if (existsSync(program)) return program
  mkdirSync(folder, { recursive: true })
  const half = `${program}.${process.pid}`
  yield* compile(half)
  renameSync(half, program)
  return program
})

/** A squashfs in the directory that holds the program at `/app/server`; made once. */
export const tenantSquashfs = (directory: string): Effect.Effect<string, Error> =>
  Effect.map(buildTenant, (program) => {
    const image = join(directory, "tenant.squashfs")
    if (existsSync(image)) return image
    const tree = join(directory, "tenant")
    mkdirSync(join(tree, "app"), { recursive: true })
    chmodSync(tree, 0o755)
    copyFileSync(program, join(tree, "app/server"))
    chmodSync(join(tree, "app/server"), 0o755)
    execFileSync("mksquashfs", [tree, image, "-quiet", "-no-progress"])
    return image
  })
