/** The kernel modules that a guest needs, each after what it depends on. */
import { readFileSync } from "node:fs"
import { basename } from "node:path"
import { moduleDependencies } from "./kernel.ts"

/**
 * The channel first: the host answers for its name while the rest is loaded. `virtio_rng` last: the kernel takes
 * its time to read from it.
 */
const WANTED = [
  "virtio_mmio",
  "virtio_console",
  "virtio_blk",
  "virtio_net",
  "squashfs",
  "overlay",
  "virtio_rng"
]

export interface KernelModule {
  readonly name: string
  readonly bytes: Uint8Array
}

const moduleName = (path: string) => basename(path, ".ko").replaceAll("-", "_")

/** `paths`: every module of the kernel; `builtin`: the lines of its `modules.builtin`. */
export const orderedModules = (
  paths: ReadonlyArray<string>,
  builtin: ReadonlyArray<string>
): ReadonlyArray<KernelModule> => {
  const byName = new Map(paths.map((path) => [moduleName(path), path]))
  const inKernel = new Set(builtin.map(moduleName))
  const ordered = new Map<string, KernelModule>()
  const add = (name: string) => {
    if (ordered.has(name) || inKernel.has(name)) return
    const path = byName.get(name)
    if (path === undefined) throw new Error(`the kernel has no module ${name}`)
    const bytes = readFileSync(path)
    for (const dependency of moduleDependencies(bytes)) add(dependency.replaceAll("-", "_"))
    ordered.set(name, { name, bytes })
  }
  for (const name of WANTED) add(name)
  return [...ordered.values()]
}
