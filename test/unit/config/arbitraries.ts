/** Configurations that are right, and ways to make them wrong, as dotted keys with their TOML. */
import { readFileSync } from "node:fs"
import fc from "fast-check"
import type { DottedKeys } from "./toml-text.ts"

export const baseConfig: DottedKeys = JSON.parse(
  readFileSync(new URL("../../vectors/config.json", import.meta.url), "utf8")
).base

const zerofs: DottedKeys = Object.fromEntries(
  Object.entries({
    binary: '"/opt/zerofs"',
    config_file: '"/etc/zerofs.toml"',
    mount_path: '"/mnt/zerofs"',
    nbd_socket_path: '"/run/nbd.sock"',
    ninep_socket_path: '"/run/9p.sock"',
    rpc_socket_path: '"/run/rpc.sock"',
    storage_url: '"s3://bucket/host"',
    cache_dir: '"/data/zerofs"',
    cache_disk_gib: "20",
    cache_memory_gib: "2",
    checkpoint_runtime_dir: '"/run/cp"',
    checkpoint_config_file: '"/etc/cp.toml"',
    checkpoint_cache_dir: '"/data/cp"'
  }).map(([key, toml]) => [`volumes.zerofs.${key}`, toml])
)

/** The same configuration with its volumes in an object store. */
export const zerofsConfig: DottedKeys = { ...baseConfig, "volumes.backend": '"zerofs"', ...zerofs }

const optional = [
  "exports",
  "network",
  "proxy",
  "proxy.http",
  "proxy.http.tls",
  "proxy.http.tls.client_ca",
  "proxy.http.concurrency",
  "proxy.raw",
  "metrics",
  "logs",
  "cron",
  "filesystem",
  "hypervisor",
  "max_concurrent_vm_starts",
  "paths.versions_file"
]

const without = (config: DottedKeys, keys: ReadonlyArray<string>): DottedKeys =>
  Object.fromEntries(
    Object.entries(config).filter(([name]) => !keys.some((key) => name === key || name.startsWith(`${key}.`)))
  )

/** A configuration that is accepted: either backend, and any of what may be absent is absent. */
export const configs: fc.Arbitrary<DottedKeys> = fc
  .tuple(fc.boolean(), fc.subarray(optional))
  .map(([onZerofs, absent]) =>
    onZerofs
      ? without(
          zerofsConfig,
          absent.filter((key) => key !== "exports")
        )
      : without(baseConfig, absent)
  )

const replacements = [
  "0",
  "1",
  "-1",
  "7",
  "8",
  "80",
  "9091",
  "9100",
  "5568",
  "21000",
  "65535",
  "65536",
  "9007199254740991",
  "1.0",
  "true",
  "1979-05-27",
  '""',
  '"/x"',
  '"x"',
  '"a//b"',
  '"s3://"',
  '"s3://a:b@c"',
  '"gs://b"',
  '"::1"',
  '"10.0.0.0/8"',
  '"zerofs"',
  '"local-file"',
  '"firecracker"',
  '"user"',
  "[]",
  '["10.0.0.0/8", "::/0"]',
  "{}",
  "{ http = {} }"
]

export type ConfigMutation = readonly [place: number, change: number]
export const configMutations: fc.Arbitrary<ReadonlyArray<ConfigMutation>> = fc.array(
  fc.tuple(fc.nat(), fc.nat()),
  { maxLength: 3 }
)

/** The configuration with values replaced, keys taken away or misspelt. */
export const mutatedConfig = (config: DottedKeys, changes: ReadonlyArray<ConfigMutation>): DottedKeys => {
  const entries = new Map(Object.entries(config))
  for (const [where, what] of changes) {
    const names = [...entries.keys()]
    const name = names[where % names.length]
    if (name === undefined) break
    const change = what % (replacements.length + 2)
    const replacement = replacements[change]
    if (replacement !== undefined) entries.set(name, replacement)
    else {
      const value = entries.get(name) ?? ""
      entries.delete(name)
      if (change === replacements.length) entries.set(`${name}s`, value)
    }
  }
  return Object.fromEntries(entries)
}
