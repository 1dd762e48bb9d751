/** Hosts below directories of their own, and the programs that stand for those of a machine. */
import { createHash } from "node:crypto"
import * as fs from "node:fs"
import * as path from "node:path"
import { Effect } from "effect"
import { decodeConfig } from "../../../src/config/decode.ts"
import type { HostConfig } from "../../../src/config/schema.ts"
import { GuestImageManifest } from "../../../src/services/GuestImage.ts"
import { temporaryDirectory } from "../../support/temporary.ts"
import { baseConfig, zerofsConfig } from "../config/arbitraries.ts"
import { type DottedKeys, tomlOf } from "../config/toml-text.ts"

export const checkout = path.join(import.meta.dirname, "../../..")
export const CONFIG_FILE = "/etc/nibrunner/config.toml"

const without = (keys: DottedKeys, ...sections: ReadonlyArray<string>): DottedKeys =>
  Object.fromEntries(
    Object.entries(keys).filter(([key]) => !sections.some((section) => key.startsWith(section)))
  )

/** Volumes on the disk, plain HTTP on every address of this machine. */
export const local: DottedKeys = {
  ...without(baseConfig, "proxy.http.tls"),
  "hypervisor.network": '"user"',
  "hypervisor.binary": '"/opt/qemu"'
}

/** Volumes on ZeroFS, its store a directory; guests behind taps. */
export const onZerofs: DottedKeys = {
  ...without(zerofsConfig, "proxy.http.tls"),
  "hypervisor.binary": '"/opt/qemu"',
  "volumes.zerofs.config_file": '"/etc/zerofs/config.toml"',
  "volumes.zerofs.checkpoint_config_file": '"/etc/zerofs/checkpoint.toml"',
  "volumes.zerofs.nbd_socket_path": '"/run/zerofs/nbd.sock"',
  "volumes.zerofs.ninep_socket_path": '"/run/zerofs/9p.sock"',
  "volumes.zerofs.rpc_socket_path": '"/run/zerofs/rpc.sock"',
  "volumes.zerofs.storage_url": '"/data/store"'
}

export const configOf = (keys: DottedKeys): HostConfig => {
  const decoded = decodeConfig(tomlOf(keys), CONFIG_FILE)
  if (decoded._tag === "Failure") throw decoded.failure
  return decoded.success
}

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex")

/** A guest image of small files, with a manifest that vouches for them. */
export const writeImage = (directory: string, version = "image-1") => {
  fs.mkdirSync(directory, { recursive: true })
  const named = Object.keys(GuestImageManifest.fields).filter((key) => !/version$/iu.test(key))
  const files = Object.fromEntries(
    named.map((key) => {
      const contents = `${key} of ${version}`
      fs.writeFileSync(path.join(directory, key), contents, { mode: key === "jail" ? 0o755 : 0o644 })
      return [key, { name: key, sha256: sha256(contents), bytes: contents.length }]
    })
  )
  const manifest = { version, kernelVersion: "6", debianVersion: "12", ...files }
  fs.writeFileSync(path.join(directory, "manifest.json"), JSON.stringify(manifest))
}

/** A root directory of its own, gone with the scope. */
export const makeRoot = Effect.map(temporaryDirectory, (directory) => {
  const root = path.join(directory, "root")
  fs.mkdirSync(root)
  const at = (file: string) => path.join(root, file)
  return {
    directory,
    root,
    at,
    write: (file: string, contents: string, mode = 0o644) => {
      fs.mkdirSync(path.dirname(at(file)), { recursive: true })
      fs.writeFileSync(at(file), contents, { mode })
    },
    read: (file: string) => fs.readFileSync(at(file), "utf8")
  }
})
export type Root = Effect.Success<typeof makeRoot>

/** All that is below a directory: each name with its mode, each file with its text. */
export const treeOf = (root: string): string => {
  const lines: Array<string> = []
  const walk = (directory: string) => {
    for (const name of fs.readdirSync(path.join(root, directory)).sort()) {
      const file = `${directory}/${name}`
      const found = fs.lstatSync(path.join(root, file))
      const mode = (found.mode & 0o7777).toString(8).padStart(4, "0")
      if (found.isDirectory()) {
        lines.push(`==== ${file}/ ${mode}`)
        walk(file)
      } else {
        lines.push(`==== ${file} ${mode}`, fs.readFileSync(path.join(root, file), "utf8").trimEnd())
      }
    }
  }
  walk("")
  return `${lines.join("\n")}\n`
}
