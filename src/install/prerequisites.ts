/** What a host must have before it can run this configuration. */
import type { HostConfig } from "../config/schema.ts"

/** A program that must be there: by name on PATH, or at an absolute path. */
export interface NeededProgram {
  readonly program: string
  readonly why: string
  readonly remedy: string
  /** Debian's package of it, where it has one. */
  readonly debian?: string
}

const fromDebian = (name: string) => `install the Debian package ${name}`

const named = (program: string, why: string, name: string): NeededProgram => ({
  program,
  why,
  remedy: fromDebian(name),
  debian: name
})

/** Every program that the daemon calls, and those that start it. */
export const neededPrograms = ({ hypervisor, volumes }: HostConfig): ReadonlyArray<NeededProgram> => [
  hypervisor?.backend === "qemu"
    ? {
        program: hypervisor.binary,
        why: "it runs the microVMs (hypervisor.binary)",
        remedy: `${fromDebian("qemu-system-x86")}, or name another in hypervisor.binary`,
        ...(/^\/(?!usr\/)/u.test(hypervisor.binary) ? {} : { debian: "qemu-system-x86" })
      }
    : named("qemu-system-x86_64", "it runs the microVMs", "qemu-system-x86"),
  named("mke2fs", "it formats volumes", "e2fsprogs"),
  named("debugfs", "it fills volumes with their first contents", "e2fsprogs"),
  named("mksquashfs", "it packs programs into layers", "squashfs-tools"),
  ...(hypervisor?.network === "user"
    ? []
    : [
        named("ip", "it makes the taps of guests", "iproute2"),
        named("nft", "it keeps guests apart", "nftables"),
        named("conntrack", "it ends what is open to a guest", "conntrack")
      ]),
  named("setpriv", "what the daemon starts for itself ends with it", "util-linux"),
  ...(volumes.zerofs === undefined
    ? []
    : [
        {
          program: volumes.zerofs.binary,
          why: "it keeps the volumes (volumes.zerofs.binary)",
          remedy: "put ZeroFS's program there"
        },
        named("qemu-img", "it takes new volumes to ZeroFS", "qemu-utils"),
        named("systemd-sysusers", "it makes the account that ZeroFS runs as", "systemd")
      ]),
  named("systemctl", "it starts the daemon", "systemd"),
  named("systemd-notify", "it tells systemd that the daemon serves", "systemd")
]

/** Why a host without the program is refused. */
export const missingProgram = ({ program, remedy, why }: NeededProgram): string =>
  `${program} is missing: ${why}; ${remedy}`

/** What somebody else has to put into a tree that is laid out for another machine. */
export const leftToOthers = (programs: ReadonlyArray<NeededProgram>): string => {
  const packages = [...new Set(programs.flatMap(({ debian }) => debian ?? []))]
  const names = programs.map(({ program }) => program).join(", ")
  return `Left to other packages: ${names}${packages.length === 0 ? "" : ` (Debian's ${packages.join(", ")})`}.`
}
