/** Where QEMU is, and which files it cannot do without: all that a confined one sees of the host's programs. */
import { execFile } from "node:child_process"
import { closeSync, existsSync, openSync, readdirSync, readSync, realpathSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { Effect } from "effect"
import { HypervisorError } from "../../../../src/services/Hypervisor.ts"
import { isExecutable } from "../../../files/executable.ts"
import { notInstalled } from "../explain.ts"
import type { VmmProgram } from "./jail.ts"

const failed = (reason: string) => new HypervisorError({ operation: "tell which files QEMU needs", reason })

/** The program's own path, behind all links; undefined where there is none. A name without a slash is looked for on PATH. */
export const findProgram = (binary: string): string | undefined => {
  const candidates = binary.includes("/")
    ? [resolve(binary)]
    : (process.env.PATH ?? "/usr/sbin:/usr/bin:/sbin:/bin").split(":").map((folder) => join(folder, binary))
  const found = candidates.find(isExecutable)
  return found === undefined ? undefined : realpathSync(found)
}

/** The paths of libraries in what a dynamic loader lists: `NAME => PATH (ADDRESS)`, and its own as `PATH (ADDRESS)`. */
export const librariesOf = (listing: string): ReadonlyArray<string> =>
  listing.split("\n").flatMap((line) => line.match(/^\s*(?:\S+ => )?(\/\S+) \(0x[0-9a-f]+\)$/u)?.[1] ?? [])

/** The loader lists what it would load, and runs nothing of it. */
const listLibraries = (program: string): Effect.Effect<ReadonlyArray<string>, HypervisorError> =>
  Effect.callback((resume) => {
    const child = execFile(
      program,
      [],
      { timeout: 30_000, env: { LC_ALL: "C", LD_TRACE_LOADED_OBJECTS: "1" } },
      (error, stdout) =>
        resume(
          error === null
            ? Effect.succeed(librariesOf(stdout))
            : Effect.fail(failed(`${program} does not tell its libraries: ${error.message}`))
        )
    )
    return Effect.sync(() => child.kill("SIGKILL"))
  })

/** QEMU loads its translator as a module on some systems. */
const moduleFolders = (prefix: string): ReadonlyArray<string> => {
  const folders = ["lib", "lib64"].flatMap((lib) => {
    const folder = join(prefix, lib)
    if (!existsSync(folder)) return []
    const below = readdirSync(folder).filter((name) => /-linux-gnu$/u.test(name))
    return [join(folder, "qemu"), ...below.map((name) => join(folder, name, "qemu"))]
  })
  return folders.filter(
    (folder) => existsSync(folder) && readdirSync(folder).some((name) => /^accel-.*\.so$/u.test(name))
  )
}

const firmwareFolders = (prefix: string): ReadonlyArray<string> =>
  ["share/qemu", "share/seabios"].map((folder) => join(prefix, folder)).filter((folder) => existsSync(folder))

const isScript = (path: string): boolean => {
  const file = openSync(path, "r")
  const start = Buffer.alloc(2)
  readSync(file, start, 0, 2, 0)
  closeSync(file)
  return start.toString("latin1") === "#!"
}

/** Finds QEMU and what it needs. Fails where it is not there, or is a script: what a script starts is not told. */
export const vmmProgram = (binary: string): Effect.Effect<VmmProgram, HypervisorError> =>
  Effect.gen(function* () {
    const path = findProgram(binary)
    if (path === undefined) return yield* failed(notInstalled(binary))
    if (isScript(path)) {
      return yield* failed(`${path} is a script: name the program that it starts in hypervisor.binary`)
    }
    const prefix = dirname(dirname(path))
    const libraries = yield* listLibraries(path)
    const cache = "/etc/ld.so.cache"
    const modules = moduleFolders(prefix)
    return {
      path,
      needs: [...libraries, ...(existsSync(cache) ? [cache] : []), ...modules, ...firmwareFolders(prefix)]
    }
  })
