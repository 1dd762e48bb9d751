/** Drives for guests under test: the image of this checkout, layers and volumes made for the occasion. */
import { spawnSync } from "node:child_process"
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { Schema } from "effect"
import { GuestImageManifest } from "../../src/services/GuestImage.ts"

const imageFolder = join(import.meta.dirname, "../../.nibrunner/guest")

const run = (command: string, args: ReadonlyArray<string>): string => {
  const { error, status, stdout, stderr } = spawnSync(command, args, { encoding: "utf8" })
  if (error !== undefined || status !== 0) throw new Error(`${command} failed: ${error?.message ?? stderr}`)
  return stdout
}

export const image = () => {
  const text = readFileSync(join(imageFolder, "manifest.json"), "utf8")
  const manifest = Schema.decodeUnknownSync(Schema.fromJsonString(GuestImageManifest))(text)
  return {
    kernel: join(imageFolder, manifest.kernel.name),
    initramfs: join(imageFolder, manifest.initramfs.name),
    base: join(imageFolder, manifest.base.name),
    tscKhz: Number(run(join(imageFolder, manifest.tscProbe.name), []))
  }
}

/** Runs debugfs's commands on a filesystem, and gives what they print. Fails when one of them complains. */
export const debugfs = (path: string, commands: ReadonlyArray<string>): string => {
  const { error, stdout, stderr } = spawnSync("debugfs", ["-w", "-f", "-", path], {
    input: `${commands.join("\n")}\n`,
    encoding: "utf8"
  })
  const complaints = stderr.split("\n").filter((line) => line !== "" && !line.startsWith("debugfs "))
  if (error !== undefined || complaints.length > 0) {
    throw new Error(`debugfs failed: ${error?.message ?? complaints.join("; ")}`)
  }
  return stdout
}

/** A folder for drives; removed by `remove`. */
export const makeWorkshop = () => {
  const folder = mkdtempSync(join(tmpdir(), "nbg-drives-"))
  let made = 0

  const tree = (
    files: Readonly<Record<string, { readonly bytes: string | Uint8Array; readonly mode?: number }>>
  ) => {
    const root = join(folder, `tree-${++made}`)
    mkdirSync(root)
    for (const [path, { bytes, mode }] of Object.entries(files)) {
      mkdirSync(dirname(join(root, path)), { recursive: true })
      writeFileSync(join(root, path), bytes)
      chmodSync(join(root, path), mode ?? 0o644)
    }
    return root
  }
  type Files = Parameters<typeof tree>[0]

  return {
    folder,
    /** `open`: whoever runs may write in these directories. */
    squashfs: (files: Files, options: { readonly open?: ReadonlyArray<string> } = {}): string => {
      const path = join(folder, `layer-${++made}.squashfs`)
      const root = tree(files)
      for (const directory of options.open ?? []) chmodSync(join(root, directory), 0o777)
      run("mksquashfs", [root, path, "-quiet", "-no-progress", "-all-root"])
      return path
    },
    /** `dirty`: as if it had been written last by a machine that lost its power. */
    ext4: (files: Files, options: { readonly dirty?: boolean } = {}): string => {
      const path = join(folder, `layer-${++made}.ext4`)
      run("mke2fs", ["-q", "-F", "-t", "ext4", "-d", tree(files), path, "8M"])
      if (options.dirty === true) run("debugfs", ["-w", "-R", "feature needs_recovery", path])
      return path
    },
    /** `commands` are debugfs's: what no tree can hold without being root. */
    volume: (mib = 32, commands: ReadonlyArray<string> = []): string => {
      const path = join(folder, `volume-${++made}.ext4`)
      writeFileSync(path, "")
      truncateSync(path, mib * 1024 * 1024)
      run("mke2fs", ["-q", "-F", "-t", "ext4", path])
      if (commands.length > 0) debugfs(path, commands)
      return path
    },
    file: (bytes: string): string => {
      const path = join(folder, `file-${++made}`)
      writeFileSync(path, bytes)
      truncateSync(path, 4096)
      return path
    },
    remove: () => rmSync(folder, { recursive: true, force: true })
  }
}

/** What `dumpe2fs` says of a filesystem's superblock. */
export const superblock = (path: string): string => run("dumpe2fs", ["-h", path])
