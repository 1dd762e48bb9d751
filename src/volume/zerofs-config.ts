/** ZeroFS's two configuration files, as this host's configuration asks for them. */
import { ZEROFS_VARIABLE } from "../config/host-env.ts"
import type { ZerofsSection } from "../config/schema.ts"

/** ZeroFS's gigabyte. */
const GB = 1e9
const GIB = 2 ** 30
const MIB = 2 ** 20

/** What a reader of one checkpoint may keep, on the disk and in memory, in GB. */
const READER_DISK_GB = 2
const READER_MEMORY_GB = 0.1

/** What ZeroFS takes as cache where its configuration says nothing, in GB. */
const DEFAULT_MEMORY_GB = 0.25

/** Names of variables that are set in the environment which ZeroFS is to run in, beside the secrets. */
export interface ZerofsEnvironment {
  /** The variable that says where S3 is, if it is not Amazon's. */
  readonly endpointVariable?: string
  /** Whether it is an `http://` address. */
  readonly endpointIsPlain?: boolean
}

/** A TOML string. `$` would have ZeroFS look for a variable. */
const quoted = (text: string) => JSON.stringify(text.replaceAll("$", "$$$$"))
/** A TOML string that ZeroFS fills in from its environment. */
const variable = (name: string) => `"\${${name}}"`
/** TOML tells a float from an integer. */
const float = (value: number) => (Number.isInteger(value) ? `${value}.0` : String(value))

const storage = ({ storage_url }: ZerofsSection, environment: ZerofsEnvironment): ReadonlyArray<string> => {
  const s3 = storage_url.startsWith("s3://")
  const { endpointVariable, endpointIsPlain = false } = environment
  return [
    "[storage]",
    `url = ${quoted(s3 ? storage_url : `file://${storage_url}`)}`,
    `encryption_password = ${variable(ZEROFS_VARIABLE)}`,
    ...(s3
      ? [
          "",
          "[aws]",
          `access_key_id = ${variable("AWS_ACCESS_KEY_ID")}`,
          `secret_access_key = ${variable("AWS_SECRET_ACCESS_KEY")}`,
          `region = ${variable("AWS_REGION")}`,
          ...(endpointVariable === undefined ? [] : [`endpoint = ${variable(endpointVariable)}`]),
          ...(endpointIsPlain ? ['allow_http = "true"'] : [])
        ]
      : [])
  ]
}

const text = (lines: ReadonlyArray<string>) => `${lines.join("\n")}\n`

/** The file at `config_file`: the one server that writes. */
export const renderZerofsConfig = (zerofs: ZerofsSection, environment: ZerofsEnvironment = {}): string =>
  text([
    "[cache]",
    `dir = ${quoted(zerofs.cache_dir)}`,
    `disk_size_gb = ${float((zerofs.cache_disk_gib * GIB) / GB)}`,
    `memory_size_gb = ${float((zerofs.cache_memory_gib * GIB) / GB)}`,
    "",
    ...storage(zerofs, environment),
    "",
    "[servers.nbd]",
    `unix_socket = ${quoted(zerofs.nbd_socket_path)}`,
    "",
    "[servers.ninep]",
    `unix_socket = ${quoted(zerofs.ninep_socket_path)}`,
    "",
    "[servers.rpc]",
    `unix_socket = ${quoted(zerofs.rpc_socket_path)}`
  ])

/** Where a reader serves its checkpoint. */
export const readerSocket = (zerofs: ZerofsSection): string => `${zerofs.checkpoint_runtime_dir}/nbd.sock`

/** The file at `checkpoint_config_file`: a reader of a checkpoint, which is only ever run with `--checkpoint`. */
export const renderReaderConfig = (zerofs: ZerofsSection, environment: ZerofsEnvironment = {}): string =>
  text([
    "[cache]",
    `dir = ${quoted(zerofs.checkpoint_cache_dir)}`,
    `disk_size_gb = ${float(READER_DISK_GB)}`,
    `memory_size_gb = ${float(READER_MEMORY_GB)}`,
    "",
    ...storage(zerofs, environment),
    "",
    "[servers.nbd]",
    `unix_socket = ${quoted(readerSocket(zerofs))}`
  ])

/** MiB of memory that a ZeroFS with this configuration takes as cache: what guests are not to be promised. */
export const cacheMemoryMib = (config: unknown): number => {
  const cache = (config as { readonly cache?: { readonly memory_size_gb?: unknown } } | undefined)?.cache
  const gb = cache?.memory_size_gb
  // whole bytes: a product of fractions is off by less than one
  return Math.ceil(Math.round((typeof gb === "number" && gb >= 0 ? gb : DEFAULT_MEMORY_GB) * GB) / MIB)
}
