/** What a configuration may say and this version does not do yet. */
import type { Path } from "../document/problems.ts"
import type { HostConfig } from "./schema.ts"

export interface Unsupported {
  /** The section or key. */
  readonly path: Path
  readonly message: string
  /** Whether no host starts with it; else it has no effect. */
  readonly refused: boolean
}

const idle = (config: HostConfig, section: "cron" | "filesystem"): ReadonlyArray<Unsupported> =>
  config[section] === undefined
    ? []
    : [{ path: [section], message: `[${section}] has no effect in this version`, refused: false }]

/** All that is so in a configuration that is valid otherwise. */
export const unsupportedIn = (config: HostConfig): ReadonlyArray<Unsupported> => [
  ...(config.hypervisor?.backend === "firecracker"
    ? [
        {
          path: ["hypervisor", "backend"],
          message: "hypervisor.backend is firecracker, which this version does not support: use qemu",
          refused: true
        }
      ]
    : []),
  ...idle(config, "cron"),
  ...idle(config, "filesystem")
]
