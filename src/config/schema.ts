/**
 * `config.toml`: what one host is, as a schema. Keys are spelled as in the file.
 *
 * No key of a present section has a default, and a key that is not known is refused: what a host does is what
 * its file says. What the keys mean to each other is in `rules.ts`.
 */
import { Schema } from "effect"
import { IP_ADDRESS, IPV4_RANGE, IPV6_RANGE, isIpAddress, rangeProblem } from "./addresses.ts"
import { MAX_RAW_PORTS, MAX_SLOTS } from "./ports.ts"
import { isTimeZone, prefixProblem, STORAGE_PREFIX, STORE_URL, storeUrlProblem, utf8Length } from "./texts.ts"

/** A key: what it says, and the value that the example file gives it. */
const key = <S extends Schema.Top>(schema: S, description: string, ...examples: ReadonlyArray<S["Type"]>) =>
  schema.annotate({ description, examples: examples as [S["Type"], ...Array<S["Type"]>] })

const whole = (minimum: number, maximum: number) => Schema.Int.check(Schema.isBetween({ minimum, maximum }))

const portNumber = whole(1, 65535)
const u16 = whole(1, 65535)
const gibibytes = whole(1, Math.floor(Number.MAX_SAFE_INTEGER / 1024))

const absolutePath = Schema.String.check(
  Schema.isPattern(/^\/[^\x00-\x1f]*$/u, { expected: "an absolute path" })
)

/** The kernel takes no longer path for a unix socket. */
const MAX_SOCKET_PATH = 107
const socketPath = absolutePath.check(
  Schema.makeFilter((path) => utf8Length(path) <= MAX_SOCKET_PATH, {
    expected: `at most ${MAX_SOCKET_PATH} bytes`,
    toJsonSchema: () => ({ maxLength: MAX_SOCKET_PATH })
  })
)

const ipAddress = Schema.String.check(
  Schema.makeFilter(isIpAddress, {
    expected: "an IP address",
    toJsonSchema: () => ({ pattern: IP_ADDRESS.source })
  })
)

const storeUrl = Schema.String.check(
  Schema.makeFilter(storeUrlProblem, {
    expected: "s3://bucket, s3://bucket/prefix or an absolute path",
    toJsonSchema: () => ({ pattern: STORE_URL.source })
  })
)

const addressRange = (family: 4 | 6) =>
  Schema.String.check(
    Schema.makeFilter((text) => rangeProblem(text, family), {
      expected: `an IPv${family} range, as address/length`,
      toJsonSchema: () => ({ pattern: (family === 4 ? IPV4_RANGE : IPV6_RANGE).source })
    })
  )

// ---------------------------------------------------------------------------------------------- sections

export const CronSection = Schema.Struct({
  max_jobs_per_app: key(
    whole(0, 65535),
    "The most jobs that one app's crontab may have. 0 takes only an empty one.",
    10
  ),
  time_zone: key(
    Schema.String.check(
      Schema.makeFilter(isTimeZone, { expected: "the name of an IANA time zone", toJsonSchema: () => ({}) })
    ),
    "The IANA time zone that crontabs are read in.",
    "UTC"
  )
}).annotate({ description: "Jobs that apps are woken for. Without it no app has any." })

export const PathsSection = Schema.Struct({
  state_dir: key(
    absolutePath,
    "What the host keeps: its notes, the report, logs, fetched objects, volumes of the local-file backend.",
    "/var/lib/nibrunner"
  ),
  runtime_dir: key(
    absolutePath,
    "Sockets and other files that need not survive a reboot. Keep it short: paths of sockets may not be long.",
    "/run/nibrunner"
  ),
  snapshot_dir: key(absolutePath, "Snapshots of microVMs that sleep.", "/var/lib/nibrunner/snapshots"),
  guest_image_dir: key(
    absolutePath,
    "The kernel, initramfs and base that every microVM boots from, with their manifest.",
    "/var/lib/nibrunner/guest"
  ),
  desired_state_file: key(
    absolutePath,
    "The document that this host watches. Replace it by renaming a whole file over it.",
    "/var/lib/nibrunner/desired.json"
  ),
  versions_file: Schema.optionalKey(
    key(
      absolutePath,
      "What `install` laid down, by version. Without it the report tells the versions that the daemon knows.",
      "/var/lib/nibrunner/versions.json"
    )
  )
}).annotate({ description: "Where things lie on this machine." })

export const ArtifactsSection = Schema.Struct({
  store_url: key(
    storeUrl,
    "Where the objects that the document names are fetched from: s3://bucket, s3://bucket/prefix or a directory.",
    "/var/lib/nibrunner/artifact-store"
  )
}).annotate({ description: "The artifact store." })

export const ZerofsSection = Schema.Struct({
  binary: key(absolutePath, "The ZeroFS program.", "/opt/nibrunner/bin/zerofs"),
  config_file: key(
    absolutePath,
    "ZeroFS's own configuration, written from this section.",
    "/etc/zerofs/config.toml"
  ),
  mount_path: key(absolutePath, "Where ZeroFS's filesystem is mounted.", "/mnt/zerofs"),
  nbd_socket_path: key(
    socketPath,
    "The unix socket on which ZeroFS serves volumes as block devices.",
    "/run/zerofs/nbd.sock"
  ),
  ninep_socket_path: key(
    socketPath,
    "The unix socket on which ZeroFS serves its filesystem.",
    "/run/zerofs/9p.sock"
  ),
  rpc_socket_path: key(
    socketPath,
    "The unix socket on which ZeroFS is told to flush and to cut checkpoints.",
    "/run/zerofs/rpc.sock"
  ),
  storage_url: key(
    storeUrl,
    "Where the volumes' blocks are kept: s3://bucket, s3://bucket/prefix or a directory.",
    "s3://my-bucket/host-1"
  ),
  cache_dir: key(absolutePath, "ZeroFS's cache on this machine's disk.", "/data/zerofs"),
  cache_disk_gib: key(
    gibibytes,
    "The size of that cache, in GiB. It shares its disk with whatever else lies there: a full disk breaks every app.",
    200
  ),
  cache_memory_gib: key(
    gibibytes,
    "Memory that ZeroFS may use as cache, in GiB. It is held back from what guests are promised.",
    2
  ),
  checkpoint_runtime_dir: key(
    absolutePath,
    "Sockets of the readers that exports are made with.",
    "/run/zerofs-checkpoint"
  ),
  checkpoint_config_file: key(
    absolutePath,
    "The configuration of those readers, written from this section.",
    "/etc/zerofs/checkpoint.toml"
  ),
  checkpoint_cache_dir: key(absolutePath, "The cache of those readers.", "/data/zerofs-checkpoint")
}).annotate({ description: "Volumes as blocks in an object store. Only with the backend `zerofs`." })
export interface ZerofsSection extends Schema.Schema.Type<typeof ZerofsSection> {}

export const VolumesSection = Schema.Struct({
  backend: key(
    Schema.Literals(["local-file", "zerofs"]),
    "`local-file` keeps volumes as sparse files under `paths.state_dir`; `zerofs` keeps them in an object store, where they outlive the machine and can be checkpointed and exported.",
    "zerofs"
  ),
  storage_prefix: key(
    Schema.String.check(
      Schema.makeFilter(prefixProblem, {
        expected: "a path without '.', '..' and empty parts, of at most 512 bytes",
        toJsonSchema: () => ({ pattern: STORAGE_PREFIX.source, maxLength: 512 })
      })
    ),
    "Names this host's volumes apart from those of others in the same store.",
    "host-1"
  ),
  zerofs: Schema.optionalKey(ZerofsSection)
}).annotate({ description: "Where volumes live." })
export interface VolumesSection extends Schema.Schema.Type<typeof VolumesSection> {}

export const ExportsSection = Schema.Struct({
  store_url: key(
    storeUrl,
    "Where finished exports are put: s3://bucket, s3://bucket/prefix or a directory.",
    "/var/lib/nibrunner/export-store"
  ),
  staging_dir: key(
    absolutePath,
    "Where an export is put together before it is uploaded.",
    "/var/lib/nibrunner/exports"
  )
}).annotate({ description: "Exports of volumes. Needed with the backend `zerofs`." })

export const NetworkSection = Schema.Struct({
  denied_egress_addresses_v4: key(
    Schema.Array(addressRange(4)),
    "IPv4 ranges that no guest reaches, beside those that none ever does.",
    ["10.0.0.0/8", "192.168.0.0/16"]
  ),
  denied_egress_addresses_v6: key(
    Schema.Array(addressRange(6)),
    "IPv6 ranges that no guest reaches, beside those that none ever does.",
    ["fc00::/7"]
  )
}).annotate({ description: "What guests may not reach. Without it nothing is denied beyond what always is." })

export const TlsSection = Schema.Struct({
  certificate: key(absolutePath, "The certificate chain, as PEM.", "/etc/nibrunner/tls.crt"),
  key: key(absolutePath, "The certificate's private key, as PEM.", "/etc/nibrunner/tls.key"),
  client_ca: Schema.optionalKey(
    Schema.Struct({
      certificate: key(
        absolutePath,
        "Certificates of the authorities that clients' certificates come from, as PEM.",
        "/etc/nibrunner/client-ca.crt"
      )
    }).annotate({ description: "Takes only clients that show a certificate of one of these authorities." })
  )
}).annotate({ description: "Serves HTTPS. Without it the proxy speaks plain HTTP." })

export const HttpProxySection = Schema.Struct({
  listen_address: key(ipAddress, "The address that the proxy listens on.", "0.0.0.0"),
  port: key(portNumber, "The port that the proxy listens on.", 80),
  tls: Schema.optionalKey(TlsSection),
  concurrency: Schema.optionalKey(
    Schema.Struct({
      host_concurrent: key(u16, "The most requests in flight on this host.", 4096),
      app_concurrent: key(u16, "The most requests in flight to one app.", 512)
    }).annotate({
      description: "Bounds on requests in flight; one more is answered with 503. Without it there are none."
    })
  )
}).annotate({ description: "Serves the hostnames of the document. Without it an app that names one fails." })
export interface HttpProxySection extends Schema.Schema.Type<typeof HttpProxySection> {}

export const RawProxySection = Schema.Struct({
  listen_address: key(ipAddress, "The address that apps' own ports listen on.", "0.0.0.0"),
  max_ports_per_guest: key(
    whole(1, MAX_RAW_PORTS),
    "The most ports that one app may name beside its HTTP one.",
    MAX_RAW_PORTS
  )
}).annotate({
  description:
    "Carries the ports that apps name beside their HTTP one. Without it an app that names one fails."
})

export const ProxySection = Schema.Struct({
  http: Schema.optionalKey(HttpProxySection),
  raw: Schema.optionalKey(RawProxySection)
}).annotate({ description: "How apps are reached. Without it, not at all from outside." })

export const MetricsSection = Schema.Struct({
  port: key(portNumber, "The port of the page, not the proxy's.", 9100),
  listen_address: key(ipAddress, "The address that the page listens on.", "127.0.0.1")
}).annotate({ description: "A page for Prometheus at /metrics. Without it there is none." })

export const FilesystemSection = Schema.Struct({
  socket: key(socketPath, "The unix socket that listings are asked on.", "/run/nibrunner/filesystem.sock")
}).annotate({ description: "Lists the files of a running guest, never their contents. Without it, off." })

/** The logs of one app, in MiB, on a host whose file does not say. */
export const DEFAULT_KEEP_MIB_PER_APP = 256

export const LogsSection = Schema.Struct({
  keep_mib_per_app: key(
    whole(1, Math.floor(Number.MAX_SAFE_INTEGER / (1024 * 1024))),
    "How much of an app's output each of its two files keeps, in MiB: the newest.",
    DEFAULT_KEEP_MIB_PER_APP
  )
}).annotate({
  description: `Apps' logs. Two files for each app, without it of at most ${DEFAULT_KEEP_MIB_PER_APP} MiB each.`
})

export const HypervisorSection = Schema.Struct({
  backend: key(
    Schema.Literals(["qemu", "firecracker"]),
    "What runs microVMs. `firecracker` is not supported yet; `qemu` uses /dev/kvm where there is one, and runs without it too, only slower.",
    "qemu"
  ),
  binary: key(absolutePath, "The program that runs a microVM.", "/usr/bin/qemu-system-x86_64"),
  network: key(
    Schema.Literals(["tap", "user"]),
    "`tap` gives each guest an interface of the host and needs root; `user` needs none, but guests have no way out. Only QEMU has it.",
    "tap"
  )
}).annotate({
  description: "How microVMs are run. Without it: by QEMU; with taps as root, else on the user network."
})
export interface HypervisorSection extends Schema.Schema.Type<typeof HypervisorSection> {}

// ------------------------------------------------------------------------------------------------- file

export const HostConfig = Schema.Struct({
  max_apps: key(
    whole(1, MAX_SLOTS),
    `How many apps this host has room for: 1 to ${MAX_SLOTS}. Each takes ${MAX_RAW_PORTS + 1} ports from 21000 up.`,
    100
  ),
  max_concurrent_vm_starts: Schema.optionalKey(
    key(u16, "The most microVMs that boot or wake at the same time. Without it there is no bound.", 8)
  ),
  paths: PathsSection,
  artifacts: ArtifactsSection,
  volumes: VolumesSection,
  exports: Schema.optionalKey(ExportsSection),
  network: Schema.optionalKey(NetworkSection),
  proxy: Schema.optionalKey(ProxySection),
  metrics: Schema.optionalKey(MetricsSection),
  logs: Schema.optionalKey(LogsSection),
  cron: Schema.optionalKey(CronSection),
  filesystem: Schema.optionalKey(FilesystemSection),
  hypervisor: Schema.optionalKey(HypervisorSection)
}).annotate({
  identifier: "HostConfig",
  title: "config.toml",
  description: "One host. It is read once, as the daemon starts."
})
/** `volumes.zerofs` and `exports` are there whenever `volumes.backend` is `zerofs`. */
export interface HostConfig extends Schema.Schema.Type<typeof HostConfig> {}
