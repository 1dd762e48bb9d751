/** Files and directories of a host as they are, and as they are to be. */
import * as fs from "node:fs/promises"
import * as path from "node:path"
import { Effect } from "effect"
import { type HostFile, isGenerated } from "../../src/install/generated.ts"
import type { HostDirectory } from "../../src/install/layout.ts"
import { replaceFile, syncDirectory } from "../files/durable.ts"
import { type FileProblem, ifPresent, onFile } from "../files/problem.ts"
import { type Place, placed } from "./place.ts"
import type { Changes } from "./say.ts"

/** The text of a file of the host; undefined where there is none. */
export const textOf = (place: Place, file: string): Effect.Effect<string | undefined, FileProblem> => {
  const at = placed(place, file)
  return ifPresent(onFile(at, () => fs.readFile(at, "utf8")))
}

/** What is to become of one file. */
export type FilePlan =
  | { readonly kind: "keep"; readonly file: HostFile }
  | { readonly kind: "write" | "replace"; readonly file: HostFile }
  /** It is there, and is somebody else's. */
  | { readonly kind: "foreign"; readonly file: HostFile }

/** Looks what a file needs. `ours`: whatever is there may be replaced. */
export const planFile = (place: Place, file: HostFile, ours: boolean): Effect.Effect<FilePlan, FileProblem> =>
  Effect.gen(function* () {
    const at = placed(place, file.path)
    const found = yield* ifPresent(onFile(at, () => fs.lstat(at)))
    if (found === undefined) return { kind: "write", file }
    if (found.isDirectory()) return { kind: "foreign", file }
    const contents = found.isFile() ? yield* onFile(at, () => fs.readFile(at, "utf8")) : undefined
    if (contents === file.contents && (found.mode & 0o7777) === file.mode) return { kind: "keep", file }
    const mayReplace = ours || (contents !== undefined && isGenerated(contents))
    return { kind: mayReplace ? "replace" : "foreign", file }
  })

/** Makes a directory and its parents; those that are made are listed, the outermost first. */
const makeDirectories = (at: string, mode: number): Effect.Effect<ReadonlyArray<string>, FileProblem> =>
  Effect.gen(function* () {
    const found = yield* ifPresent(onFile(at, () => fs.stat(at)))
    if (found !== undefined) return []
    const parent = path.dirname(at)
    const above = parent === at ? [] : yield* makeDirectories(parent, 0o755)
    yield* onFile(at, () => fs.mkdir(at, { mode }))
    yield* onFile(at, () => fs.chmod(at, mode))
    yield* syncDirectory(parent)
    return [...above, at]
  })

/** Writes a file that is not as it is to be. */
export const writeFile = (
  place: Place,
  file: HostFile,
  verb: string,
  changes: Changes
): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    const at = placed(place, file.path)
    yield* makeDirectories(path.dirname(at), 0o755)
    yield* replaceFile(at, new TextEncoder().encode(file.contents), file.mode)
    yield* changes.made(`${verb} ${file.path}`)
  })

/** User and group of an account of the host; undefined where there is none of that name. */
const accountOf = (place: Place, name: string) =>
  Effect.map(textOf(place, "/etc/passwd"), (passwd) => {
    const [, , uid, gid] =
      passwd
        ?.split("\n")
        .find((line) => line.startsWith(`${name}:`))
        ?.split(":") ?? []
    return uid === undefined || gid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) }
  })

const octal = (mode: number): string => mode.toString(8).padStart(4, "0")

/** What is mounted on this machine. A filesystem whose server is gone would hold up who looks at it. */
const mountPoints = (place: Place): Effect.Effect<ReadonlySet<string>, FileProblem> =>
  Effect.map(textOf(place, "/proc/self/mountinfo"), (text) => {
    const points = (text ?? "").split("\n").flatMap((line) => line.split(" ")[4] ?? [])
    return new Set(
      points.map((point) =>
        point.replace(/\\([0-7]{3})/gu, (_, digits: string) =>
          String.fromCharCode(Number.parseInt(digits, 8))
        )
      )
    )
  })

/** Makes the directory, or gives it the mode and the owner that it is to have. */
export const ensureDirectory = (
  place: Place,
  directory: HostDirectory,
  changes: Changes
): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    const { mode } = directory
    if (place.live && (yield* mountPoints(place)).has(directory.path) && directory.owner === undefined) return
    const at = placed(place, directory.path)
    const made = yield* makeDirectories(at, mode)
    if (made.length > 0) yield* changes.made(`made the directory ${directory.path}`)
    const found = yield* onFile(at, () => fs.stat(at))
    if (mode === 0o700 && (found.mode & 0o7777) !== mode) {
      yield* onFile(at, () => fs.chmod(at, mode))
      yield* changes.made(
        `made the directory ${directory.path} private: ${octal(mode)} instead of ${octal(found.mode & 0o7777)}`
      )
    }
    if (directory.owner === undefined || !place.live) return
    const account = yield* accountOf(place, directory.owner)
    if (account === undefined || (account.uid === found.uid && account.gid === found.gid)) return
    yield* onFile(at, () => fs.chown(at, account.uid, account.gid))
    yield* changes.made(`gave the directory ${directory.path} to ${directory.owner}`)
  })

/** Removes a generated file that this configuration asks for no more. */
export const removeGenerated = (
  place: Place,
  file: string,
  changes: Changes
): Effect.Effect<void, FileProblem> =>
  Effect.gen(function* () {
    const contents = yield* textOf(place, file)
    if (contents === undefined || !isGenerated(contents)) return
    const at = placed(place, file)
    yield* onFile(at, () => fs.rm(at))
    yield* changes.made(`removed ${file}: this configuration needs it no more`)
  })
