/**
 * Builds the guest image: kernel, initramfs with PID 1, Debian base, and the manifest that vouches for them.
 *
 *     node guest/image/build.ts [--out DIR] [--force]
 *
 * As root, on Debian, in a folder beside the output, renamed into place when whole. When nothing that the image
 * is made of has changed, it ends at once.
 */
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { basename, dirname, join, resolve } from "node:path"
import { parseArgs } from "node:util"
import type { GuestImageManifest } from "../../src/services/GuestImage.ts"
import { cachedBase } from "./base.ts"
import { characterDevice, directory, file, newcArchive } from "./cpio.ts"
import { baseVersion, inputsVersion, packageVersions } from "./inputs.ts"
import { unpackKernel } from "./kernel.ts"
import { orderedModules } from "./modules.ts"
import { run } from "./run.ts"

const guestDirectory = dirname(import.meta.dirname)
const checkout = dirname(guestDirectory)

const FILES = {
  kernel: "vmlinux",
  initramfs: "initramfs",
  base: "base.squashfs",
  tscProbe: "tsc-khz",
  jail: "jail",
  nbdRelay: "nbd-relay",
  volumeBundle: "volume-bundle"
} as const

/** Set in the environment of a build that holds the lock. */
const LOCKED = "NIBRUNNER_IMAGE_LOCKED"

const step = <A>(name: string, work: () => A): A => {
  const started = performance.now()
  const result = work()
  console.log(`  ${name.padEnd(44)} ${((performance.now() - started) / 1000).toFixed(1).padStart(6)} s`)
  return result
}

const compile = (sources: ReadonlyArray<string>, output: string) => {
  const flags = ["-D_GNU_SOURCE", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s"]
  run("musl-gcc", [...flags, "-I", join(guestDirectory, "wire"), "-o", output, ...sources, "-lm"])
}

/** With Debian's libext2fs, which is made for the other C library. */
const compileBundle = (output: string) => {
  const flags = ["-D_GNU_SOURCE", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s"]
  const sources = filesUnder(join(guestDirectory, "bundle"), ".c")
  run("gcc", [...flags, "-o", output, ...sources, "-lext2fs", "-lcom_err"])
}

const filesUnder = (folder: string, suffix: string): ReadonlyArray<string> =>
  readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(suffix))
    .map((name) => join(folder, name))

/** Fetches and unpacks the kernel's package, without installing it; gives the folder and the kernel's version. */
const fetchKernel = (work: string) => {
  const dependency = run("apt-cache", ["depends", "linux-image-cloud-amd64"])
  const name = /Depends: (linux-image-\S+)/.exec(dependency)?.[1]
  if (name === undefined) throw new Error("linux-image-cloud-amd64 depends on no kernel package")
  run("apt-get", ["-q", "-o", "APT::Sandbox::User=root", "download", name], { cwd: work })
  const [archive] = filesUnder(work, ".deb")
  if (archive === undefined) throw new Error(`apt-get download left no package ${name}`)
  const folder = join(work, "kernel")
  run("dpkg-deb", ["-x", archive, folder])
  return { folder, version: name.slice("linux-image-".length) }
}

const buildInitramfs = (work: string, modulesFolder: string): Uint8Array => {
  const init = join(work, "init")
  compile(
    [...filesUnder(join(guestDirectory, "init"), ".c"), ...filesUnder(join(guestDirectory, "wire"), ".c")],
    init
  )
  const builtin = readFileSync(join(modulesFolder, "modules.builtin"), "utf8").trim().split("\n")
  const modules = orderedModules(filesUnder(modulesFolder, ".ko"), builtin)
  return newcArchive([
    ...["dev", "proc", "sys", "modules", "root"].map(directory),
    characterDevice("dev/console", 0o600, 5, 1),
    file("init", 0o755, readFileSync(init)),
    ...modules.map(({ name, bytes }) => file(`modules/${name}.ko`, 0o644, bytes)),
    file("modules/list", 0o644, Buffer.from(modules.map(({ name }) => `${name}.ko\n`).join("")))
  ])
}

const described = (folder: string, name: string) => {
  const bytes = readFileSync(join(folder, name))
  return { name, sha256: createHash("sha256").update(bytes).digest("hex"), bytes: bytes.length }
}

const readVersion = (output: string): string | undefined => {
  const path = join(output, "manifest.json")
  if (!existsSync(path)) return undefined
  try {
    const manifest = JSON.parse(readFileSync(path, "utf8")) as Partial<GuestImageManifest>
    const files = [
      manifest.kernel,
      manifest.initramfs,
      manifest.base,
      manifest.tscProbe,
      manifest.jail,
      manifest.nbdRelay,
      manifest.volumeBundle
    ]
    const whole = files.every(
      (entry) =>
        entry !== undefined &&
        statSync(join(output, entry.name), { throwIfNoEntry: false })?.size === entry.bytes
    )
    return whole ? manifest.version : undefined
  } catch {
    return undefined
  }
}

/** The new folder takes the old one's place, whole and on the disk; the old one is deleted after. */
const install = (image: string, output: string) => {
  run("sync", [...readdirSync(image).map((name) => join(image, name)), image])
  const old = `${output}.building-old`
  if (existsSync(output)) renameSync(output, old)
  renameSync(image, output)
  run("sync", [dirname(output)])
  rmSync(old, { recursive: true, force: true })
}

/** What builds that were killed have left. */
const removeLeftovers = (output: string) => {
  const prefix = `${basename(output)}.building-`
  for (const name of readdirSync(dirname(output)).filter((entry) => entry.startsWith(prefix))) {
    rmSync(join(dirname(output), name), { recursive: true, force: true })
  }
}

const build = (output: string, version: string, versions: ReadonlyMap<string, string>) => {
  removeLeftovers(output)
  const work = mkdtempSync(`${output}.building-`)
  try {
    const image = join(work, "image")
    mkdirSync(image)
    const kernel = step("fetch and unpack Debian's cloud kernel", () => fetchKernel(work))
    step("make the kernel bootable without unpacking", () => {
      const bzImage = readFileSync(join(kernel.folder, "boot", `vmlinuz-${kernel.version}`))
      writeFileSync(join(image, FILES.kernel), unpackKernel(bzImage))
    })
    step("compile PID 1 and pack the initramfs", () => {
      const modules = join(kernel.folder, "lib/modules", kernel.version)
      writeFileSync(join(image, FILES.initramfs), buildInitramfs(work, modules))
    })
    step("compile the TSC probe", () => {
      compile([join(import.meta.dirname, "tsc-khz.c")], join(image, FILES.tscProbe))
    })
    step("compile the VMM's jail", () => {
      compile([join(import.meta.dirname, "jail.c")], join(image, FILES.jail))
    })
    step("compile the NBD relay", () => {
      compile([join(import.meta.dirname, "nbd-relay.c")], join(image, FILES.nbdRelay))
    })
    step("compile the writer of bundles", () => compileBundle(join(image, FILES.volumeBundle)))
    const debianVersion = step("gather and pack the Debian base", () =>
      cachedBase(join(image, FILES.base), join(checkout, ".cache/guest-base"), baseVersion(versions), work)
    )
    const manifest: GuestImageManifest = {
      version,
      kernelVersion: kernel.version,
      debianVersion,
      kernel: described(image, FILES.kernel),
      initramfs: described(image, FILES.initramfs),
      base: described(image, FILES.base),
      tscProbe: described(image, FILES.tscProbe),
      jail: described(image, FILES.jail),
      nbdRelay: described(image, FILES.nbdRelay),
      volumeBundle: described(image, FILES.volumeBundle)
    }
    writeFileSync(join(image, "manifest.json"), `${JSON.stringify(manifest, null, 2)}\n`)
    install(image, output)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

const main = () => {
  const { values } = parseArgs({ options: { out: { type: "string" }, force: { type: "boolean" } } })
  const output = resolve(values.out ?? join(checkout, ".nibrunner/guest"))
  const versions = packageVersions()
  const version = inputsVersion(guestDirectory, versions)
  if (values.force !== true && readVersion(output) === version) {
    console.log(`guest image ${version} is up to date in ${output}`)
    return
  }
  if (process.getuid?.() !== 0)
    throw new Error("the guest image is built as root: files of its base are root's")
  mkdirSync(dirname(output), { recursive: true })
  if (process.env[LOCKED] === undefined) {
    // One build at a time: whoever comes second waits, and finds the image up to date.
    const again = [`${output}.lock`, process.execPath, ...process.execArgv, ...process.argv.slice(1)]
    const { status } = spawnSync("flock", again, { stdio: "inherit", env: { ...process.env, [LOCKED]: "1" } })
    process.exitCode = status ?? 1
    return
  }
  console.log(`building guest image ${version} into ${output}`)
  step("all of it", () => build(output, version, versions))
}

try {
  main()
} catch (error) {
  console.error(`the guest image was not built: ${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = 1
}
