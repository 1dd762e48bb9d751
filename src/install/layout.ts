/** Everything that `install` lays down for a configuration. */
import type { HostConfig } from "../config/schema.ts"
import type { HostFile } from "./generated.ts"
import { kernelFiles, MODULES_FILE, NBD_OPTIONS_FILE, SYSCTL_FILE } from "./kernel.ts"
import { ownSocketDirectories, runtimeNames, type UnitContext, unitFiles } from "./units.ts"
import { ZEROFS_ACCOUNT_FILE, ZEROFS_USER, zerofsFiles } from "./zerofs.ts"

/** A directory of a host. */
export interface HostDirectory {
  readonly path: string
  /** Permission bits. A directory that is there and is not to be private keeps its own. */
  readonly mode: number
  /** The account that it belongs to; root where nothing is said. */
  readonly owner?: string
}

const PRIVATE = 0o700
const OPEN = 0o755

const parentOf = (path: string): string => path.slice(0, Math.max(1, path.lastIndexOf("/")))

const isPath = (url: string | undefined): url is string => url?.startsWith("/") === true

/** Parents come before what is in them. */
export const hostDirectories = (config: HostConfig): ReadonlyArray<HostDirectory> => {
  const { artifacts, exports: exported, paths, volumes } = config
  const open = (path: string): HostDirectory => ({ path, mode: OPEN })
  const secret = (path: string, owner?: string): HostDirectory => ({
    path,
    mode: PRIVATE,
    ...(owner === undefined ? {} : { owner })
  })
  const { zerofs } = volumes
  const wanted = [
    // everybody on the host may read the report that is in it
    open(paths.state_dir),
    ...(runtimeNames([paths.runtime_dir]).length === 0 ? [open(paths.runtime_dir)] : []),
    open(parentOf(paths.desired_state_file)),
    open(paths.guest_image_dir),
    secret(paths.snapshot_dir),
    ...(isPath(artifacts.store_url) ? [open(artifacts.store_url)] : []),
    ...(exported === undefined
      ? []
      : [...(isPath(exported.store_url) ? [secret(exported.store_url)] : []), secret(exported.staging_dir)]),
    ...(zerofs === undefined
      ? []
      : [
          secret(zerofs.cache_dir, ZEROFS_USER),
          ...(isPath(zerofs.storage_url) ? [secret(zerofs.storage_url, ZEROFS_USER)] : []),
          ...ownSocketDirectories(zerofs).map((path) => secret(path, ZEROFS_USER)),
          secret(zerofs.checkpoint_cache_dir),
          ...(runtimeNames([zerofs.checkpoint_runtime_dir]).length === 0
            ? [secret(zerofs.checkpoint_runtime_dir)]
            : []),
          secret(zerofs.mount_path)
        ])
  ]
  // The first that names a path says what it is.
  return wanted.filter(({ path }, at) => wanted.findIndex((other) => other.path === path) === at)
}

/** What the files are made from beside the configuration. */
export interface LayoutContext extends UnitContext {
  /** The text of `host.env`; empty where there is none yet. */
  readonly hostEnv: string
}

/** Every generated file, in the order in which they are written. */
export const hostFiles = (config: HostConfig, context: LayoutContext): ReadonlyArray<HostFile> => [
  ...kernelFiles(config),
  ...(config.volumes.zerofs === undefined ? [] : zerofsFiles(config.volumes.zerofs, context.hostEnv)),
  ...unitFiles(config, context)
]

/** Generated files that another configuration may have left: harmful at the next boot, and gone without a trace. */
export const removableFiles: ReadonlyArray<string> = [
  SYSCTL_FILE,
  MODULES_FILE,
  NBD_OPTIONS_FILE,
  ZEROFS_ACCOUNT_FILE
]

/** What `paths.versions_file` says. */
export const versionsFile = (
  path: string,
  versions: { readonly agent: string; readonly guestImage: string; readonly zerofs: string }
): HostFile => ({
  path,
  contents: `${JSON.stringify({ ...versions, firecracker: "none" }, null, 2)}\n`,
  mode: 0o644
})

/** The units of a configuration as examples, for who packages them: a program in /opt, a configuration in /etc. */
export const exampleUnits = (config: HostConfig): ReadonlyArray<HostFile> =>
  unitFiles(config, {
    configFile: "/etc/nibrunner/config.toml",
    program: "/opt/nibrunner/bin/nibrunnerd"
  })
