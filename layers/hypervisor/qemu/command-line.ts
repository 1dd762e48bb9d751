/** QEMU's command line for a microVM, and what of it can be read back from a running process. */
import { forwardOf } from "../../../src/network/user-link.ts"
import type { MachineSpec } from "../../../src/services/Hypervisor.ts"
import type { VolumeAttachment } from "../../../src/services/VolumeBackend.ts"
import { DESCRIPTORS } from "./confinement/jail.ts"
import { type RunDirectory, runRoot } from "./run-directory.ts"

/** What runs the guest's instructions. */
export type Accelerator =
  | { readonly kind: "kvm" }
  /** QEMU's own translator. `tscKhz` is the frequency of the host's TSC, which the guest sees. */
  | { readonly kind: "tcg"; readonly tscKhz: number }

/** The name of a machine's memory among QEMU's memory blocks. */
export const MEMORY_BLOCK = "microvm.ram"

/** The name of the virtio-serial port that PID 1 opens. */
export const GUEST_PORT_NAME = "nibrunner.guest"

const NAME_PREFIX = "nibrunner-"

/** What QEMU's translator may keep of translated code, in MiB; 1024 by default, on top of the guest's memory. */
export const TRANSLATIONS_MIB = 128

/**
 * What is denied to QEMU's process beyond what it needs once it runs: old system calls, other users' rights, new
 * processes, and the change of its own limits.
 */
const SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

/**
 * The guest kernel's command line.
 *
 * Under TCG `tsc_early_khz` is what keeps boots from hanging: without it the kernel measures its TSC against
 * the PIT, and when the host's cores are busy the measurement never comes out.
 */
export const kernelCommandLine = (accelerator: Accelerator): string =>
  [
    "console=ttyS0",
    // What the kernel says of its timer is among its warnings.
    ...(accelerator.kind === "tcg" ? ["loglevel=5", "apic=verbose"] : ["quiet"]),
    // A panic ends the VMM at once (with -no-reboot), and the console has said why.
    "panic=-1",
    // A fault that no handler takes resets the processor wherever the kernel runs. Other ways end in the firmware, which
    // a machine that was woken has, and no kernel for it to start: it would halt there.
    "reboot=t",
    "8250.nr_uarts=1",
    "no_timer_check",
    "random.trust_cpu=on",
    "rcupdate.rcu_expedited=1",
    "cryptomgr.notests",
    ...(accelerator.kind === "tcg" ? ["tsc=reliable", `tsc_early_khz=${accelerator.tscKhz}`] : [])
  ].join(" ")

/** Read-only, with a shared lock on the file: many VMMs may have one image open. */
const image = (name: string, path: string) => ({
  "node-name": name,
  driver: "raw",
  "read-only": true,
  file: { driver: "file", filename: path, "read-only": true, locking: "on" }
})

/** How long a server that went away is waited for before a request fails; then the machine stops until it is there. Seconds. */
const RECONNECT_SECONDS = 60

/**
 * Writable. A file is opened with an exclusive lock: a second VMM on the same volume fails. The host's page cache is used and a
 * guest's flush becomes an fdatasync of the file, so that what a guest has synced survives the host. What the
 * guest discards is given back to the host's filesystem.
 */
const volume = (attachment: VolumeAttachment) => ({
  "node-name": "volume",
  driver: "raw",
  discard: "unmap",
  cache: { direct: false, "no-flush": false },
  file:
    attachment.kind === "file"
      ? {
          driver: "file",
          filename: attachment.path,
          discard: "unmap",
          locking: "on",
          cache: { direct: false, "no-flush": false }
        }
      : {
          driver: "nbd",
          server: { type: "unix", path: attachment.socketPath },
          export: attachment.exportName,
          "reconnect-delay": RECONNECT_SECONDS,
          discard: "unmap"
        }
})

/** A server's error stops the machine, which has the request repeated when it goes on: its guest sees none. */
const onError = (drive: { readonly file: { readonly driver: string } }) =>
  drive.file.driver === "nbd" ? ",werror=stop,rerror=stop" : ""

const netdev = ({ link, slot }: Pick<MachineSpec, "link" | "slot">) => {
  // Made and addressed by the host, and opened before QEMU runs: it needs no right to it.
  if (link.kind === "tap") return `tap,id=net,fd=${DESCRIPTORS.tap},vhost=off`
  const forwards = link.ports.map((guestPort) => {
    const { host, port } = forwardOf(slot, guestPort)
    return `hostfwd=tcp:${host}:${port}-${link.guestAddress}:${guestPort}`
  })
  // A /30 has no room for a DHCP range and a resolver beside the two ends, and QEMU insists on three addresses
  // that differ: the guest's own is the range, and the broadcast address, which nobody answers, the resolver.
  return [
    "user",
    "id=net",
    "restrict=on",
    "ipv6=off",
    `net=${link.hostAddress}/${link.prefixLength}`,
    `host=${link.hostAddress}`,
    `dhcpstart=${link.guestAddress}`,
    `dns=${broadcast(link.guestAddress, link.prefixLength)}`,
    ...forwards
  ].join(",")
}

const broadcast = (address: string, prefixLength: number): string => {
  const bits = address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0)
  const size = 2 ** (32 - prefixLength)
  const last = Math.floor(bits / size) * size + size - 1
  return [24, 16, 8, 0].map((shift) => Math.floor(last / 2 ** shift) % 256).join(".")
}

/** What QEMU takes a comma for: the end of an option's value, unless it is doubled. */
const value = (text: string) => text.replaceAll(",", ",,")

/** It listens already: QEMU neither makes nor sees the socket's file. */
const socket = (id: keyof typeof DESCRIPTORS) => [
  "-chardev",
  `socket,id=${id},fd=${DESCRIPTORS[id]},server=on,wait=off`
]

/**
 * The arguments behind QEMU's own name. The machine is started paused (`-S`): it runs once its control socket has
 * been told to, so that no guest runs unheard.
 *
 * Drives: the base, the layers bottom first, the volume; the guest sees them in this order from `vda`.
 *
 * For a `sleeper` it waits for the state of its devices. Its memory is the snapshot's file, mapped privately: it is read
 * when it is touched, and the file does not change. There is no kernel to load: the guest has one.
 */
export const commandLine = (
  spec: MachineSpec,
  directory: RunDirectory,
  accelerator: Accelerator,
  sleeper?: { readonly memory: string }
): ReadonlyArray<string> => {
  const drives = [
    image("base", spec.image.base),
    ...spec.layers.map((path, index) => image(`layer${index}`, path)),
    volume(spec.volume)
  ]
  return [
    "-name",
    value(`${NAME_PREFIX}${spec.machineId}@${directory.path}`),
    "-sandbox",
    SANDBOX,
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    "-no-reboot",
    "-S",
    "-machine",
    sleeper === undefined ? "microvm" : `microvm,memory-backend=${MEMORY_BLOCK}`,
    "-accel",
    accelerator.kind === "kvm" ? "kvm" : `tcg,tb-size=${TRANSLATIONS_MIB}`,
    "-cpu",
    accelerator.kind === "kvm" ? "host" : "max",
    "-smp",
    String(spec.vcpuCount),
    "-m",
    `${spec.memoryMib}M`,
    ...(sleeper === undefined
      ? [
          "-kernel",
          spec.image.kernel,
          "-initrd",
          spec.image.initramfs,
          "-append",
          kernelCommandLine(accelerator)
        ]
      : [
          "-object",
          `memory-backend-file,id=${MEMORY_BLOCK},size=${spec.memoryMib}M,mem-path=${value(sleeper.memory)},share=off`,
          "-incoming",
          "defer"
        ]),
    ...socket("qmp"),
    "-mon",
    "chardev=qmp,mode=control",
    ...socket("console"),
    "-serial",
    "chardev:console",
    ...socket("guest"),
    "-device",
    "virtio-serial-device",
    "-device",
    `virtserialport,chardev=guest,name=${GUEST_PORT_NAME}`,
    "-device",
    "virtio-rng-device",
    "-netdev",
    netdev(spec),
    "-device",
    `virtio-net-device,netdev=net,mac=${spec.link.mac}`,
    ...drives.flatMap((drive) => [
      "-blockdev",
      JSON.stringify(drive),
      "-device",
      `virtio-blk-device,drive=${drive["node-name"]},serial=${drive["node-name"]}${onError(drive)}`
    ])
  ]
}

/** What a VMM's command line says of it. */
export interface VmmName {
  readonly machineId: string
  readonly slot: number
}

/**
 * Reads a process's command line (`/proc/<pid>/cmdline`, split at its NULs); none when it is not the VMM of a
 * microVM under this `runtime_dir`. Other hosts on the same machine have other runtime directories.
 */
export const readCommandLine = (argv: ReadonlyArray<string>, runtimeDir: string): VmmName | undefined => {
  const name = argv[argv.indexOf("-name") + 1]?.replaceAll(",,", ",")
  const id = name?.startsWith(NAME_PREFIX) ? name.slice(NAME_PREFIX.length) : ""
  const [machineId, place] = [id.slice(0, 16), id.slice(16)] as const
  const start = `@${runRoot(runtimeDir)}/`
  const slot = place.startsWith(start) ? place.slice(start.length) : ""
  return /^[0-9a-f]{16}$/u.test(machineId) && /^\d+$/u.test(slot)
    ? { machineId, slot: Number(slot) }
    : undefined
}
