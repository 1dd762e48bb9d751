/** The units of a host, as systemd reads them. */
import { hostEnvFile } from "../config/host-env.ts"
import type { HostConfig, ZerofsSection } from "../config/schema.ts"
import { generatedFile, type HostFile } from "./generated.ts"
import { commandLine, environmentFile, pathUnitName, plainText, word } from "./systemd-text.ts"
import { ZEROFS_USER } from "./zerofs.ts"

export const UNIT_DIRECTORY = "/etc/systemd/system"
export const DAEMON_UNIT = "nibrunnerd.service"
export const ZEROFS_UNIT = "nibrunner-zerofs.service"

/** What units are made from beside the configuration. */
export interface UnitContext {
  /** The configuration's path. */
  readonly configFile: string
  /** The path of the program `nibrunnerd`. */
  readonly program: string
}

/** The most files that the daemon may open: proxied connections, and a few for each microVM. */
const OPEN_FILES = 1_048_576
/** Of ZeroFS: connections and files of its cache. */
const ZEROFS_OPEN_FILES = 262_144

/**
 * The names below /run that systemd makes for a service, from directories that are there; each with its path. A directory
 * elsewhere is not systemd's to make.
 */
export const runtimeNames = (paths: ReadonlyArray<string>): ReadonlyArray<string> =>
  [...new Set(paths)].flatMap((path) => {
    const name = /^(?:\/var)?\/run\/(.+?)\/*$/u.exec(path)?.[1]
    return name === undefined || name.split("/").some((part) => part === "" || part === "." || part === "..")
      ? []
      : [name]
  })

const runtimeDirectories = (paths: ReadonlyArray<string>, mode: string): ReadonlyArray<string> => {
  const names = runtimeNames(paths)
  return names.length === 0
    ? []
    : [
        `RuntimeDirectory=${names.map(word).join(" ")}`,
        `RuntimeDirectoryMode=${mode}`,
        "RuntimeDirectoryPreserve=yes"
      ]
}

const file = (name: string, lines: ReadonlyArray<string>) => generatedFile(`${UNIT_DIRECTORY}/${name}`, lines)

/** The daemon's unit. */
export const daemonUnit = (config: HostConfig, { configFile, program }: UnitContext): HostFile => {
  const { paths, volumes } = config
  const directories = [...new Set([paths.state_dir, paths.snapshot_dir, paths.guest_image_dir])]
  // Wanted and not required: apps outlive a ZeroFS that is away, and the daemon says so.
  const storage = volumes.backend === "zerofs" ? [ZEROFS_UNIT] : []
  return file(DAEMON_UNIT, [
    "[Unit]",
    "Description=nibrunner: apps in microVMs of their own",
    `Wants=${["network-online.target", ...storage].join(" ")}`,
    `After=${["network-online.target", "nftables.service", ...storage].join(" ")}`,
    `RequiresMountsFor=${directories.map(word).join(" ")}`,
    "# It is tried again for as long as it takes.",
    "StartLimitIntervalSec=0",
    "",
    "[Service]",
    "Type=notify",
    "NotifyAccess=main",
    `ExecStart=${commandLine(program, "daemon")}`,
    `Environment=${word(`NIBRUNNER_CONFIG=${configFile}`)}`,
    `EnvironmentFile=${environmentFile(hostEnvFile(configFile))}`,
    "Restart=always",
    "RestartSec=5",
    "# It reads the whole guest image before it says that it serves.",
    "TimeoutStartSec=300",
    "TimeoutStopSec=45",
    "# The microVMs live on without the daemon, and the next one takes them up.",
    "KillMode=process",
    "OOMPolicy=continue",
    "OOMScoreAdjust=-900",
    `LimitNOFILE=${OPEN_FILES}`,
    "TasksMax=infinity",
    "# The groups of microVMs are beside the service's: this keeps the controllers on that limit them.",
    "Delegate=yes",
    ...runtimeDirectories([paths.runtime_dir], "0755"),
    "",
    "[Install]",
    "WantedBy=multi-user.target"
  ])
}

const directoryOf = (path: string): string => path.slice(0, Math.max(1, path.lastIndexOf("/")))

const socketsOf = (zerofs: ZerofsSection): ReadonlyArray<string> => [
  zerofs.nbd_socket_path,
  zerofs.ninep_socket_path,
  zerofs.rpc_socket_path
]

/** The directories of ZeroFS's sockets. */
export const socketDirectories = (zerofs: ZerofsSection): ReadonlyArray<string> => [
  ...new Set(socketsOf(zerofs).map(directoryOf))
]

/** Directories of its sockets that systemd does not make. */
export const ownSocketDirectories = (zerofs: ZerofsSection): ReadonlyArray<string> =>
  socketDirectories(zerofs).filter((path) => runtimeNames([path]).length === 0)

/** The unit of the one ZeroFS that writes. */
export const zerofsUnit = (zerofs: ZerofsSection, { configFile }: UnitContext): HostFile => {
  const sockets = socketsOf(zerofs)
  const onDisk = zerofs.storage_url.startsWith("/") ? [zerofs.storage_url] : []
  const writable = [zerofs.cache_dir, ...onDisk, ...ownSocketDirectories(zerofs)]
  const inTmp = writable.some((path) => /^\/(?:var\/)?tmp\//u.test(path))
  // For what comes after it, and no longer than 30 seconds: a store that is away holds up nothing else.
  const waits =
    'n=0; for socket; do until [ -S "$socket" ] || [ $n -ge 150 ]; do n=$((n + 1)); sleep 0.2; done; done'
  return file(ZEROFS_UNIT, [
    "[Unit]",
    "Description=ZeroFS: the volumes of nibrunner's apps",
    `Wants=network-online.target ${mountUnitName(zerofs)}`,
    "After=network-online.target",
    `RequiresMountsFor=${[zerofs.cache_dir, ...onDisk].map(word).join(" ")}`,
    "# Its store may be away for hours: it is tried again for as long as it takes.",
    "StartLimitIntervalSec=0",
    "",
    "[Service]",
    "Type=simple",
    `User=${ZEROFS_USER}`,
    `Group=${ZEROFS_USER}`,
    `ExecStartPre=${commandLine("/bin/rm", "-f", "--", ...sockets)}`,
    `ExecStart=${commandLine(zerofs.binary, "run", "--config", zerofs.config_file)}`,
    `ExecStartPost=${commandLine("/bin/sh", "-c", waits, "sh", ...sockets)}`,
    `EnvironmentFile=${environmentFile(hostEnvFile(configFile))}`,
    "Restart=always",
    "RestartSec=2",
    "TimeoutStartSec=60",
    "# What is in memory goes to the store before it ends.",
    "TimeoutStopSec=180",
    "OOMScoreAdjust=-900",
    `LimitNOFILE=${ZEROFS_OPEN_FILES}`,
    ...runtimeDirectories(socketDirectories(zerofs), "0700"),
    "UMask=0077",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    `ReadWritePaths=${writable.map(word).join(" ")}`,
    "ProtectHome=read-only",
    ...(inTmp ? [] : ["PrivateTmp=yes"]),
    "DevicePolicy=closed",
    "",
    "[Install]",
    "WantedBy=multi-user.target"
  ])
}

/** The name of the unit that mounts ZeroFS's filesystem; systemd asks for this one. */
export const mountUnitName = ({ mount_path }: ZerofsSection): string => `${pathUnitName(mount_path)}.mount`

/** For the operator to look at: nothing of the daemon's goes through the mount. It comes and goes with ZeroFS. */
export const mountUnit = (zerofs: ZerofsSection): HostFile =>
  file(mountUnitName(zerofs), [
    "[Unit]",
    "Description=The filesystem in which ZeroFS keeps the volumes of nibrunner's apps",
    `BindsTo=${ZEROFS_UNIT}`,
    `After=${ZEROFS_UNIT}`,
    "",
    "[Mount]",
    `What=${plainText(zerofs.ninep_socket_path)}`,
    `Where=${plainText(zerofs.mount_path)}`,
    "Type=9p",
    // _netdev: systemd would have it before the local filesystems, and so before ZeroFS, which comes after them.
    "Options=_netdev,trans=unix,version=9p2000.L,access=user,nosuid,nodev,noexec",
    "DirectoryMode=0700",
    "LazyUnmount=yes",
    "TimeoutSec=60"
  ])

/** Every unit that this configuration asks for. */
export const unitFiles = (config: HostConfig, context: UnitContext): ReadonlyArray<HostFile> => {
  const { zerofs } = config.volumes
  return [
    ...(zerofs === undefined ? [] : [zerofsUnit(zerofs, context), mountUnit(zerofs)]),
    daemonUnit(config, context)
  ]
}
