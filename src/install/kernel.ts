/** What a host asks of its kernel: settings and modules, and the files that ask for them at every boot. */
import type { HostConfig } from "../config/schema.ts"
import { generatedFile, type HostFile } from "./generated.ts"

export const SYSCTL_FILE = "/etc/sysctl.d/99-nibrunner.conf"
export const MODULES_FILE = "/etc/modules-load.d/nibrunner.conf"
export const NBD_OPTIONS_FILE = "/etc/modprobe.d/nibrunner-nbd.conf"

/** A setting of the kernel. */
export interface KernelSetting {
  /** Dotted, as sysctl(8) spells it. */
  readonly name: string
  readonly value: number
  /** A larger value that is in force does as well. */
  readonly atLeast: boolean
}

/** Flows that the kernel follows: what one app may have open, and the least for a small host. */
const FLOWS_PER_APP = 1024
const LEAST_FLOWS = 262_144

/** Guests on the user network use nothing of the kernel's. Where the configuration does not say, root has taps. */
const mayHaveTaps = ({ hypervisor }: HostConfig): boolean => hypervisor?.network !== "user"

/** The settings that are to be in force. */
export const kernelSettings = (config: HostConfig): ReadonlyArray<KernelSetting> => {
  if (!mayHaveTaps(config)) return []
  const flows = Math.max(FLOWS_PER_APP * config.max_apps, LEAST_FLOWS)
  return [
    { name: "net.ipv4.ip_forward", value: 1, atLeast: false },
    { name: "net.netfilter.nf_conntrack_max", value: flows, atLeast: true },
    { name: "net.netfilter.nf_conntrack_buckets", value: flows, atLeast: true }
  ]
}

/** The modules that are to be loaded, in order. */
export const kernelModules = (config: HostConfig): ReadonlyArray<string> => [
  ...(mayHaveTaps(config) ? ["nf_conntrack", "tun"] : []),
  ...(config.volumes.backend === "zerofs" ? ["nbd"] : [])
]

/** Devices of the module nbd: one a slot, and one that exports are read through. */
export const nbdMinors = (config: HostConfig): number => config.max_apps + 1

/** The files of the kernel's settings; none for what this configuration does not need. */
export const kernelFiles = (config: HostConfig): ReadonlyArray<HostFile> => {
  const settings = kernelSettings(config)
  const modules = kernelModules(config)
  return [
    ...(settings.length === 0
      ? []
      : [
          generatedFile(SYSCTL_FILE, [
            `# Guests are routed, and the flows of ${config.max_apps} apps are followed.`,
            ...settings.map(({ name, value }) => `${name} = ${value}`)
          ])
        ]),
    ...(modules.length === 0 ? [] : [generatedFile(MODULES_FILE, modules)]),
    ...(config.volumes.backend === "zerofs"
      ? [
          generatedFile(NBD_OPTIONS_FILE, [
            `# A device for each of ${config.max_apps} apps, and one that exports are read through.`,
            `options nbd nbds_max=${nbdMinors(config)}`
          ])
        ]
      : [])
  ]
}
