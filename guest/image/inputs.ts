/** What the image is made of: when none of it has changed, the image that is there is the one that would be made. */
import { createHash } from "node:crypto"
import { readdirSync, readFileSync } from "node:fs"
import { join, relative } from "node:path"
import { run } from "./run.ts"

const KERNEL = "linux-image-cloud-amd64"
/** Packages whose versions stand for the Debian that the image is made from. */
const PACKAGES = [
  KERNEL,
  "base-files",
  "libc6",
  "libstdc++6",
  "ca-certificates",
  "libssl3",
  "musl-dev",
  "libext2fs-dev"
]

const sources = (directory: string): ReadonlyArray<string> =>
  readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()

/** The versions that apt would install now. */
export const packageVersions = (): ReadonlyMap<string, string> => {
  const versions = new Map<string, string>()
  let name = ""
  for (const line of run("apt-cache", ["policy", ...PACKAGES]).split("\n")) {
    if (/^\S+:$/.test(line)) name = line.slice(0, -1)
    const candidate = /^ {2}Candidate: (\S+)/.exec(line)?.[1]
    if (candidate !== undefined && candidate !== "(none)") versions.set(name, candidate)
  }
  const missing = PACKAGES.filter((wanted) => !versions.has(wanted))
  if (missing.length > 0) {
    throw new Error(`apt knows no version of ${missing.join(", ")}: run apt-get update, or name a mirror`)
  }
  return versions
}

const versionOf = (
  directory: string,
  paths: ReadonlyArray<string>,
  versions: ReadonlyMap<string, string>
): string => {
  const hash = createHash("sha256")
  for (const path of paths)
    hash
      .update(`${relative(directory, path)}\0`)
      .update(readFileSync(path))
      .update("\0")
  for (const [name, version] of versions) hash.update(`${name}=${version}\0`)
  return hash.digest("hex").slice(0, 16)
}

/** 16 hex digits that change with every source under `guest/` and every package version. */
export const inputsVersion = (guestDirectory: string, versions: ReadonlyMap<string, string>): string =>
  versionOf(
    guestDirectory,
    ["init", "wire", "image", "bundle"].flatMap((name) => sources(join(guestDirectory, name))),
    versions
  )

/** The same for the base alone. */
export const baseVersion = (versions: ReadonlyMap<string, string>): string =>
  versionOf(import.meta.dirname, [join(import.meta.dirname, "base.ts")], versions)
