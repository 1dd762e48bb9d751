/** What a VMM is given, and how `guest/image/jail.c`, the program that starts it, is told. */
import { dirname } from "node:path"
import type { VmmIdentity } from "../../../../src/hypervisor/identity.ts"
import type { MachineSpec } from "../../../../src/services/Hypervisor.ts"
import type { Accelerator } from "../command-line.ts"
import type { RunDirectory } from "../run-directory.ts"

/** The number under which the VMM finds each socket, and its tap: the order in which `jailArguments` names them. */
export const DESCRIPTORS = { qmp: 3, console: 4, guest: 5, tap: 6 } as const

/** QEMU, and the files that it cannot do without. */
export interface VmmProgram {
  readonly path: string
  /** Libraries, modules and firmware: files, or directories that hold nothing else. */
  readonly needs: ReadonlyArray<string>
}

/** What of the host a VMM sees, where it is on the host. */
export interface Sight {
  readonly readOnly: ReadonlyArray<string>
  readonly writable: ReadonlyArray<string>
  readonly devices: ReadonlyArray<string>
}

/** The VMM's own files, and nothing else. `memory`: the file of the snapshot that it wakes from. */
export const sightOf = (
  spec: MachineSpec,
  directory: RunDirectory,
  program: VmmProgram,
  accelerator: Accelerator,
  memory: string | undefined
): Sight => ({
  readOnly: [
    ...new Set([
      program.path,
      ...program.needs,
      ...(memory === undefined ? [spec.image.kernel, spec.image.initramfs] : []),
      spec.image.base,
      ...spec.layers,
      // Its own entries are root's: there is only `save.sock` in it for the VMM, when it is put to sleep.
      directory.path,
      ...(spec.volume.kind === "nbd" ? [dirname(spec.volume.socketPath)] : [])
    ])
  ],
  writable: [
    ...(spec.volume.kind === "file" ? [spec.volume.path] : []),
    ...(memory === undefined ? [] : [memory])
  ],
  devices: ["/dev/null", "/dev/urandom", ...(accelerator.kind === "kvm" ? ["/dev/kvm"] : [])]
})

/** A confined VMM's surroundings. */
export interface Surroundings {
  /** An empty directory of the host, on which the VMM's root is mounted where nobody else sees it. */
  readonly root: string
  readonly identity: VmmIdentity
  readonly sight: Sight
  /** The directories of the cgroups that it runs in. */
  readonly groups: ReadonlyArray<string>
}

/**
 * The jail's arguments for a VMM. Without `surroundings` it gets its sockets and can gain no privileges, and is confined
 * no further: for a daemon that is not root.
 */
export const jailArguments = (
  directory: RunDirectory,
  link: MachineSpec["link"],
  surroundings: Surroundings | undefined,
  program: string,
  programArguments: ReadonlyArray<string>
): ReadonlyArray<string> => {
  const each = (option: string, values: ReadonlyArray<string>) => values.flatMap((value) => [option, value])
  return [
    ...each("--listen", [directory.qmp, directory.console, directory.guest]),
    ...(link.kind === "tap" ? ["--tap", link.ifname] : []),
    ...(surroundings === undefined
      ? []
      : [
          ...each("--group", surroundings.groups),
          "--root",
          surroundings.root,
          // A tap is open already. The user network is QEMU's own use of the host's.
          ...(link.kind === "tap" ? ["--no-network"] : []),
          ...each("--ro", surroundings.sight.readOnly),
          ...each("--rw", surroundings.sight.writable),
          ...each("--device", surroundings.sight.devices),
          "--user",
          String(surroundings.identity.uid)
        ]),
    "--",
    program,
    ...programArguments
  ]
}
