/** The Debian that every app's root stands on: as Debian's slim image, with libstdc++ and CA certificates. */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync
} from "node:fs"
import { join } from "node:path"
import { run } from "./run.ts"

const SUITE = "bookworm"
/** 2023-06-10, the day of Debian 12: every time in the base. */
const EPOCH = 1_686_355_200
const INCLUDED = ["libstdc++6", "ca-certificates"]

/** What Debian's slim image leaves out; copyright files stay. */
const PATHS = [
  "path-exclude=/usr/share/doc/*",
  "path-include=/usr/share/doc/*/copyright",
  "path-exclude=/usr/share/groff/*",
  "path-exclude=/usr/share/info/*",
  "path-exclude=/usr/share/linda/*",
  "path-exclude=/usr/share/lintian/*",
  "path-exclude=/usr/share/locale/*",
  "path-exclude=/usr/share/man/*"
]

/** Files whose content is the build's and not the base's: times, names of this machine, caches. */
const LEFT_OVER = [
  "etc/hostname",
  "etc/resolv.conf",
  "etc/machine-id",
  "var/cache/ldconfig/aux-cache",
  "var/lib/apt/lists",
  "var/cache/apt"
]

const tidy = (root: string) => {
  for (const path of LEFT_OVER) rmSync(join(root, path), { recursive: true, force: true })
  for (const directory of ["dev", "run", "tmp", "var/log"]) {
    for (const name of readdirSync(join(root, directory))) {
      rmSync(join(root, directory, name), { recursive: true, force: true })
    }
  }
  writeFileSync(join(root, "etc/hosts"), "127.0.0.1 localhost\n::1 localhost\n")
}

const build = (work: string, image: string) => {
  const root = join(work, "base")
  run(
    "mmdebstrap",
    [
      "--mode=root",
      "--format=directory",
      "--variant=minbase",
      `--include=${INCLUDED.join(",")}`,
      ...PATHS.map((path) => `--dpkgopt=${path}`),
      SUITE,
      root
    ],
    { env: { SOURCE_DATE_EPOCH: String(EPOCH) } }
  )
  tidy(root)
  run("mksquashfs", [
    root,
    image,
    ...["-comp", "lz4", "-Xhc", "-b", "128K", "-noappend", "-no-progress", "-quiet"],
    ...["-mkfs-time", String(EPOCH), "-all-time", String(EPOCH)]
  ])
  return readFileSync(join(root, "etc/debian_version"), "utf8").trim()
}

/**
 * Writes the base's image and gives the version of its Debian release, for instance `12.11`. The same packages make
 * the same bytes, so it is gathered once per `version` of what it is made of and kept in `cache`.
 */
export const cachedBase = (image: string, cache: string, version: string, work: string): string => {
  const kept = join(cache, `${version}.squashfs`)
  const release = join(cache, `${version}.release`)
  if (!existsSync(release)) {
    rmSync(cache, { recursive: true, force: true })
    mkdirSync(cache, { recursive: true })
    const fresh = join(work, "base.squashfs")
    const debianVersion = build(work, fresh)
    copyFileSync(fresh, kept)
    writeFileSync(release, debianVersion)
  }
  copyFileSync(kept, image)
  return readFileSync(release, "utf8")
}
